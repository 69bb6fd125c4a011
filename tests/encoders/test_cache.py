"""What was made of whole clips, kept within a bound of bytes."""

from dataclasses import replace

import pytest
import torch
from fake_encoder import ScriptedEncoder

from sensorium.encoders.base import ClipHints, Output, Rows, Word
from sensorium.encoders.cache import MAX_SHARE, CacheKey, OutputCache
from sensorium.encoders.media import Intake

KEY = CacheKey(
    tenant="a", content="5" * 64, modality="image", encoder="vit", revision="1", hints=None
)
MIB = 2**20


def rows_output(num_bytes: int, value: float = 0.0) -> Output:
    return Output(rows=(Rows(values=torch.full((num_bytes // 256, 64), value)),))


def keep(cache: OutputCache, key: CacheKey, *outputs: Output) -> None:
    recording = cache.recording()
    assert recording is not None
    for output in outputs:
        recording.add(output)
    cache.keep(key, recording)


def numbered(number: int) -> CacheKey:
    return replace(KEY, content=f"{number:064x}")


def test_calls_become_one_output() -> None:
    cache = OutputCache(MIB)
    one, two = Rows(values=torch.ones(2, 8), lead="0s"), Rows(values=torch.zeros(3, 8), lead="1s")
    word, other = (
        Word(text=text, start_s=0.0, end_s=1.0, probability=0.5) for text in ("hello", "there")
    )
    keep(
        cache,
        KEY,
        Output(rows=(one,), text=" hello", words=(word,), pending=" th", encoder="vit"),
        Output(rows=(two,), text=" there", words=(other,), language="en", encoder="vit"),
        Output(encoder="vit"),
    )
    found = cache.find(KEY)
    assert found is not None
    assert (found.text, found.words, found.pending) == (" hello there", (word, other), "")
    assert (found.language, found.encoder, found.problem) == ("en", "vit", None)
    assert [rows.lead for rows in found.rows] == ["0s", "1s"]
    for kept, made in zip(found.rows, (one, two), strict=True):
        assert torch.equal(kept.values, made.values)


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "b"},
        {"content": "5" * 63 + "6"},
        {"modality": "video"},
        {"encoder": "resnet"},
        {"revision": "2"},
        {"hints": ClipHints(language="de")},
    ],
)
def test_whatever_a_result_depends_on_is_in_the_key(other: dict[str, object]) -> None:
    cache = OutputCache(MIB)
    keep(cache, KEY, Output(text="a cat"))
    assert cache.find(replace(KEY, **other)) is None  # type: ignore[arg-type]  # one of its fields
    assert cache.find(KEY) == Output(text="a cat")
    assert (cache.num_hits, cache.num_misses) == (1, 1)


def test_rows_depend_on_the_media_alone_and_words_on_the_hints_too() -> None:
    def keys(intake: Intake) -> set[CacheKey]:
        encoder = ScriptedEncoder(intake=intake)
        return {
            CacheKey.of(encoder, "audio", ClipHints(live=live), content="5" * 64, tenant="a")
            for live in (True, False)
        }

    assert len(keys(Intake(encoder="ears", rate_hz=100, gives_rows=True))) == 1
    assert len(keys(Intake(encoder="ears", rate_hz=100))) == 2


def test_unused_for_longest_goes_first() -> None:
    cache = OutputCache(5 * 100_000)
    for number in range(4):
        keep(cache, numbered(number), rows_output(100_000))
    assert cache.find(numbered(0)) is not None
    keep(cache, numbered(4), rows_output(100_000))
    assert [number for number in range(5) if cache.find(numbered(number))] == [0, 2, 3, 4]
    assert 4 * 99_000 < cache.num_bytes <= 5 * 100_000


def test_nothing_large_or_endless_pushes_everybody_out() -> None:
    cache = OutputCache(MIB)
    keep(cache, numbered(0), rows_output(1000))
    keep(cache, numbered(1), *[rows_output(10_000)] * (MIB // 10_000 // MAX_SHARE + 1))
    assert cache.find(numbered(1)) is None
    assert cache.find(numbered(0)) is not None


def test_many_empty_results_are_bounded_too() -> None:
    cache = OutputCache(100_000)
    for number in range(1000):
        keep(cache, numbered(number), Output())
    assert 50 < sum(cache.find(numbered(number)) is not None for number in range(1000)) < 500


def test_the_same_clip_again_takes_its_own_place() -> None:
    cache = OutputCache(MIB)
    keep(cache, KEY, rows_output(100_000, 1.0))
    before = cache.num_bytes
    keep(cache, KEY, rows_output(100_000, 2.0))
    assert cache.num_bytes == before
    found = cache.find(KEY)
    assert found is not None
    assert found.rows[0].values[0, 0] == 2.0


def test_a_problem_is_not_kept() -> None:
    cache = OutputCache(MIB)
    keep(cache, KEY, Output(text="a"), Output(problem="too dark"), Output(text="b"))
    assert cache.find(KEY) is None
    assert cache.num_bytes == 0


def test_rows_of_a_batch_leave_the_others_behind() -> None:
    cache = OutputCache(MIB)
    batch = torch.ones(100, 8)
    keep(cache, KEY, Output(rows=(Rows(values=batch[:2]),)))
    batch.zero_()
    found = cache.find(KEY)
    assert found is not None
    assert found.rows[0].values.untyped_storage().nbytes() == 2 * 8 * 4
    assert bool((found.rows[0].values == 1).all())


def test_without_room_nothing_is_recorded() -> None:
    assert OutputCache(0).recording() is None
    assert OutputCache(0).find(KEY) is None
