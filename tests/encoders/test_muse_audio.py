"""Muse's audio rows: as transformers makes them, however the sound arrives."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from muse_checkpoint import RATE_HZ, cached_tiny_muse, golden
from muse_sound import HOP, by_transformers, frame, heard, recording, rows_of, tiny_encoder
from torch import Tensor

from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.media import MediaError, MediaFrame, Pts, Samples
from sensorium.encoders.muse_audio import passes

JFK = "jfk_16k.wav"


def close(found: Tensor, expected: Tensor, atol: float) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def noise(num: int, seed: int = 0) -> Samples:
    return (0.3 * np.random.default_rng(seed).standard_normal(num)).astype(np.float32)


def test_rows_are_transformers_on_its_golden_clips() -> None:
    found = golden(cached_tiny_muse())
    rows = torch.cat([heard(found[f"in.clip.{i}"].numpy()) for i in range(2)])
    close(rows, found["audio.features"], 2e-5)


@pytest.mark.parametrize("num", [1, HOP - 1, HOP, HOP + 1, 5 * HOP, 70 * HOP + 7])
@pytest.mark.parametrize("name", [JFK, "es_sentence_16k.wav"])
def test_rows_are_transformers_on_recordings_of_any_length(name: str, num: int) -> None:
    samples = recording(name)[12_000 : 12_000 + num]
    rows = heard(samples)
    assert len(rows) == -(-num // HOP)
    close(rows, by_transformers(samples), 2e-5)


@settings(max_examples=40, deadline=None)
@given(
    num=st.integers(1, 9 * HOP),
    sizes=st.lists(st.one_of(st.integers(1, 400), st.integers(1, 4 * HOP)), max_size=40),
)
def test_any_split_equals_the_whole(num: int, sizes: list[int]) -> None:
    samples = recording(JFK)[10_000 : 10_000 + num]
    close(heard(samples, sizes), heard(samples), 1e-5)


def test_sample_by_sample_equals_the_whole() -> None:
    samples = recording(JFK)[10_000 : 10_000 + 3 * HOP + 5]
    close(heard(samples, [1] * len(samples)), by_transformers(samples), 2e-5)


def test_a_clip_longer_than_a_pass_equals_the_whole() -> None:
    samples = noise(150 * HOP)
    close(heard(samples), by_transformers(samples), 2e-5)


def test_streams_out_of_step_in_one_batch_equal_each_alone() -> None:
    encoder, random = tiny_encoder(), np.random.default_rng(3)
    sounds = [noise(int(random.integers(1, 30 * HOP)), seed) for seed in range(32)]
    clips = [encoder.open(ClipHints()) for _ in sounds]
    begins = [0] * len(sounds)
    outputs: list[list[Output]] = [[] for _ in sounds]
    while True:
        sharing = [i for i, sound in enumerate(sounds) if begins[i] < len(sound)]
        if not sharing:
            break
        batch: list[tuple[MediaFrame, ...]] = []
        for i in sharing:  # some bring less than a hop, some bring many
            size = int(random.integers(1, random.choice([HOP, 2 * HOP, 9 * HOP])))
            batch.append((frame(sounds[i][begins[i] : begins[i] + size], begins[i]),))
            begins[i] += size
        made = encoder.push(batch, [clips[i] for i in sharing])
        for i, output in zip(sharing, made, strict=True):
            outputs[i].append(output)
    for i, output in enumerate(encoder.flush(clips)):
        outputs[i].append(output)
    for sound, parts in zip(sounds, outputs, strict=True):
        close(rows_of(parts), heard(sound), 1e-5)


def test_a_row_needs_nothing_after_its_own_samples() -> None:
    samples = noise(20 * HOP)
    before, t = heard(samples), 11
    changed = samples.copy()
    changed[(t + 1) * HOP :] = noise(len(samples), seed=1)[(t + 1) * HOP :]
    after = heard(changed)
    close(after[: t + 1], before[: t + 1], 1e-6)
    assert (after[t + 1] - before[t + 1]).abs().max() > 0.1
    changed = samples.copy()
    changed[(t + 1) * HOP - 1] += 0.5  # the very last one does count
    assert (heard(changed)[t] - before[t]).abs().max() > 1e-4


def test_a_row_comes_with_its_last_sample() -> None:
    encoder = tiny_encoder()
    clip = encoder.open(ClipHints())
    samples = noise(HOP)
    assert not encoder.ready(clip, HOP - 1)
    assert encoder.ready(clip, HOP)
    assert encoder.push([(frame(samples[:-1]),)], [clip])[0].rows == ()
    assert encoder.ready(clip, 1)
    assert len(rows_of(encoder.push([(frame(samples[-1:], HOP - 1),)], [clip]))) == 1
    assert not encoder.ready(clip, HOP - 1)
    assert encoder.flush([clip])[0].rows == ()


def test_joining_midway_is_exact_from_the_17th_row_on() -> None:
    samples = noise(40 * HOP)
    whole, joined = heard(samples)[10:], heard(samples[10 * HOP :])
    close(joined[16:], whole[16:], 1e-5)
    assert (joined[:16] - whole[:16]).abs().amax(1).min() > 1e-4


def test_silence_is_not_an_empty_state() -> None:
    samples = noise(3 * HOP)
    fresh = heard(samples)
    after_silence = heard(np.concatenate([np.zeros(20 * HOP, np.float32), samples]))[20:]
    assert (fresh - after_silence).abs().max() > 0.01


def test_what_is_not_finite_counts_as_silence() -> None:
    samples = noise(2 * HOP)
    silent = samples.copy()
    samples[[5, 900, 2500]] = np.nan, np.inf, -np.inf
    silent[[5, 900, 2500]] = 0
    close(heard(samples), heard(silent), 1e-6)


def test_rows_of_the_loudest_floats_are_finite() -> None:
    samples = noise(2 * HOP)
    samples[::3], samples[1::3] = np.finfo(np.float32).max, -np.finfo(np.float32).max
    assert heard(samples).isfinite().all()


def test_a_clip_without_a_sample_has_no_rows() -> None:
    encoder = tiny_encoder()
    assert encoder.flush([encoder.open(ClipHints())])[0].rows == ()


def test_rows_have_the_time_of_their_sound() -> None:
    encoder = tiny_encoder()
    clip = encoder.open(ClipHints())
    late = frame(noise(2 * HOP), RATE_HZ)
    (rows,) = encoder.push([(late,)], [clip])[0].rows
    assert (rows.start_s, rows.step_s) == (1.0, 0.08)
    (rows,) = encoder.push([(frame(noise(HOP), RATE_HZ + 2 * HOP),)], [clip])[0].rows
    assert rows.start_s == pytest.approx(1.16)


def test_frames_of_another_rate_are_refused_and_nothing_is_lost() -> None:
    encoder = tiny_encoder()
    clips = [encoder.open(ClipHints()) for _ in range(2)]
    wrong = MediaFrame(pts=Pts(0), rate_hz=16_000, data=noise(HOP))
    good = noise(HOP)
    with pytest.raises(MediaError, match="24000 Hz, not 16000 Hz"):
        encoder.push([(frame(good),), (wrong,)], clips)
    close(rows_of(encoder.push([(frame(good),)], clips[:1])), heard(good), 1e-6)


def test_a_clip_and_its_rows_hold_nothing_of_the_batch_they_were_made_in() -> None:
    encoder = tiny_encoder()
    clips = [encoder.open(ClipHints()) for _ in range(8)]
    outputs = encoder.push([(frame(noise(5 * HOP + 3)),)] * 8, clips)
    for clip, output in zip(clips, outputs, strict=True):
        assert clip.past.untyped_storage().nbytes() == 4 * len(clip.past)
        assert clip.waiting.base is None
        (rows,) = output.rows
        assert rows.values.untyped_storage().nbytes() == 4 * 5 * 64


@given(counts=st.lists(st.integers(0, 40), max_size=8), most=st.integers(1, 20))
def test_passes_take_every_hop_once_in_order_and_are_bounded(counts: list[int], most: int) -> None:
    taken = [0] * len(counts)
    for shares in passes(counts, most):
        assert {i for i, _, _ in shares} == {i for i, n in enumerate(counts) if taken[i] < n}
        assert sum(end - begin for _, begin, end in shares) <= max(most, len(shares))
        for i, begin, end in shares:
            assert taken[i] == begin < end
            taken[i] = end
    assert taken == counts
