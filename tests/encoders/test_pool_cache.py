"""A clip that was encoded before isn't encoded again, and nobody can tell but by the time."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from fake_encoder import RATE_HZ, ScriptedEncoder

from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.cache import OutputCache
from sensorium.encoders.media import MediaFrame, Pts
from sensorium.encoders.pool import EncoderPool

CLIP = "c" * 64
HINTS = ClipHints(live=False)


def second(number: int) -> MediaFrame:
    samples = np.zeros(RATE_HZ, np.float32)
    return MediaFrame(pts=Pts(number * RATE_HZ), rate_hz=RATE_HZ, data=samples)


@dataclass
class Bench:
    """A pool with a cache, driven by hand."""

    cache_bytes: int = 2**20
    encoder: ScriptedEncoder = field(default_factory=ScriptedEncoder)
    outputs: list[tuple[str, int, Output, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = OutputCache(self.cache_bytes)
        self.pool = EncoderPool[str](
            {"audio": self.encoder},
            on_output=lambda *output: self.outputs.append(output),
            cache=self.cache,
        )

    def hear(
        self,
        key: str,
        *,
        content: str = CLIP,
        at_close: bool = False,
        tenant: str = "",
        hints: ClipHints = HINTS,
    ) -> list[tuple[int, str, bool]]:
        """Send three seconds; return what came: ticks taken, text, whether it was the last."""
        self.outputs.clear()
        self.encoder.batches.clear()
        self.pool.open(key, "audio", hints, "" if at_close else content, tenant)
        for number in range(3):
            self.pool.push(key, second(number))
            self.pool.run_once()
        self.pool.close(key, content)
        while self.pool.run_once():
            pass
        return [(taken, output.text, final) for _, taken, output, final in self.outputs]


TEXT = " word0 word1 word2"


def test_the_second_time_all_comes_at_once_and_media_is_only_counted() -> None:
    bench = Bench()
    first = bench.hear("first")
    assert len(bench.encoder.batches) == 4
    assert "".join(text for _, text, _ in first) == TEXT
    bench.outputs.clear()
    bench.encoder.batches.clear()
    bench.pool.open("again", "audio", HINTS, CLIP)
    ((_, taken, output, final),) = bench.outputs
    assert (taken, output.text, len(output.words), final) == (0, TEXT, 3, False)
    bench.pool.push("again", second(0))
    bench.pool.anticipate("again")
    bench.pool.close("again")
    bench.pool.push("again", second(1))
    assert not bench.pool.run_once()
    assert [(taken, text.text, final) for _, taken, text, final in bench.outputs[1:]] == [
        (RATE_HZ, "", False),
        (0, "", True),
    ]
    assert bench.encoder.batches == []


def test_a_clip_may_be_named_when_it_ends() -> None:
    bench = Bench()
    bench.hear("recorded", at_close=True)
    assert bench.hear("again")[0] == (0, TEXT, False)
    assert bench.encoder.batches == []


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "b"},
        {"content": "d" * 64},
        {"content": ""},
        {"hints": replace(HINTS, language="de")},
    ],
)
def test_other_clips_tenants_and_hints_are_encoded(other: dict[str, str]) -> None:
    bench = Bench()
    bench.hear("first", tenant="a")
    bench.hear("other", **{"tenant": "a", **other})  # type: ignore[arg-type]  # `hear`'s own
    assert bench.encoder.batches
    bench.hear("again", tenant="a")
    assert not bench.encoder.batches


def test_another_revision_is_encoded() -> None:
    bench = Bench()
    bench.hear("first")
    bench.encoder.revision = "2"
    bench.hear("again")
    assert bench.encoder.batches


def test_without_a_cache_everything_is_encoded() -> None:
    bench = Bench(cache_bytes=0)
    bench.hear("first")
    bench.hear("again")
    assert bench.encoder.batches


def test_a_clip_that_failed_is_tried_again() -> None:
    bench = Bench()
    poisoned = replace(HINTS, prompt="poison")
    for _ in range(2):
        bench.hear("bad", hints=poisoned)
        assert bench.outputs[-1][2].problem
        assert bench.encoder.batches
    assert bench.cache.num_bytes == 0


def test_half_a_clip_is_not_kept() -> None:
    bench = Bench()
    bench.pool.open("half", "audio", HINTS, CLIP)
    bench.pool.push("half", second(0))
    bench.pool.run_once()
    bench.pool.drop("half")
    bench.pool.close("half", CLIP)
    assert bench.cache.num_bytes == 0
    assert "".join(text for _, text, _ in bench.hear("whole")) == TEXT


def test_a_known_clip_that_is_dropped_says_nothing_more() -> None:
    bench = Bench()
    bench.hear("first")
    bench.pool.open("again", "audio", HINTS, CLIP)
    bench.pool.drop("again")
    bench.outputs.clear()
    bench.pool.push("again", second(0))
    bench.pool.close("again")
    assert bench.outputs == []
