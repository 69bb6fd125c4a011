"""Frames of recorded videos by the reference's formula or by time; a camera's by media time."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from sensorium.encoders.frame_choice import LiveChoice, choose
from sensorium.encoders.media import Pixels

RATES = st.sampled_from(
    [1.0, 2.0, 7.0, 7.5, 12.5, 24000 / 1001, 25.0, 30000 / 1001, 30.0, 60.0, 240.0]
)


def _by_formula(total: int, rate: float, fps: float, cap: int) -> list[int]:
    num = min(int(total * fps / rate), cap, total)
    num = min(max(2, num // 2 * 2), total)
    indices: list[int] = torch.linspace(0, total - 1, num).long().tolist()
    return indices


@given(
    total=st.integers(1, 3000),
    rate=RATES,
    fps=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    cap=st.integers(2, 700),
    digits=st.sampled_from([3, 6, 17]),
)
@example(total=40, rate=30000 / 1001, fps=3.0, cap=700, digits=3)
@example(total=2997, rate=30000 / 1001, fps=2.0, cap=700, digits=3)
@example(total=20, rate=7.5, fps=3.0, cap=700, digits=3)
@example(total=355, rate=7.1, fps=2.0, cap=700, digits=17)
@example(total=37, rate=1.0, fps=2.0, cap=342, digits=3)  # fewer frames than wanted, and odd
def test_at_a_constant_rate_the_formula_holds(
    total: int, rate: float, fps: float, cap: int, digits: int
) -> None:
    """Whatever the times are rounded to: Matroska's milliseconds, our microseconds, nothing."""
    times_s = [round(index / rate, digits) for index in range(total)]
    assert choose(times_s, fps=fps, max_frames=cap) == _by_formula(total, rate, fps, cap)


def test_float32_decides_where_exact_numbers_would_not() -> None:
    times_s = [index / 4.6 for index in range(79)]
    assert choose(times_s, fps=2.0, max_frames=600) == _by_formula(79, 4.6, 2.0, 600)
    assert choose(times_s, fps=2.0, max_frames=600)[11] == 25
    assert 11 * 78 // 33 == 26


def test_a_variable_rate_goes_by_time() -> None:
    """Ten frames in the first second, then one for three: moments 0, 0.8, 1.6, 2.4, 3.2, 4 s."""
    times_s = [*(index / 10 for index in range(10)), 4.0]
    assert choose(times_s, fps=2.4, max_frames=6) == [0, 8, 9, 10]


@given(
    times_s=st.lists(st.floats(0, 100), max_size=60).map(sorted),
    fps=st.floats(0.1, 30),
    half=st.integers(1, 20),
)
def test_any_times_give_rising_indices_within_the_cap(
    times_s: list[float], fps: float, half: int
) -> None:
    chosen = choose(times_s, fps=fps, max_frames=2 * half)
    assert chosen == sorted(set(chosen))
    assert len(chosen) <= 2 * half
    assert set(chosen) <= set(range(len(times_s)))
    assert bool(chosen) == bool(times_s)


def test_falling_times_are_refused() -> None:
    with pytest.raises(ValueError, match="must not fall"):
        choose([0.0, 2.0, 1.0], fps=2.0, max_frames=8)


def _scene(level: int, height: int = 56, width: int = 84) -> Pixels:
    return np.full((height, width, 3), level, dtype=np.uint8)


def _take(choice: LiveChoice, time_s: float, pixels: Pixels) -> bool:
    return choice.due(time_s) and choice.differs(time_s, pixels)


def test_a_fast_camera_is_thinned_by_media_time() -> None:
    choice = LiveChoice(fps=2.0)
    taken = [i for i in range(150) if _take(choice, i / 30, _scene(i))]
    assert taken == list(range(0, 150, 15))
    assert choice.num_skipped == 140


def test_a_camera_of_the_wanted_rate_loses_nothing_to_jitter() -> None:
    choice = LiveChoice(fps=2.0)
    jitter = [0.0, -0.04, 0.03, -0.05, 0.05, -0.02]
    taken = [_take(choice, i / 2 + jitter[i % 6], _scene(40 * (i % 5))) for i in range(60)]
    assert all(taken)


def test_a_camera_a_little_too_fast_is_held_to_the_rate() -> None:
    choice = LiveChoice(fps=2.0)
    taken = [i for i in range(220) if _take(choice, i / 2.2, _scene(40 * (i % 5)))]
    assert 180 <= len(taken) <= 201


def test_a_still_scene_is_shown_again_at_the_heartbeat() -> None:
    choice = LiveChoice(fps=2.0, heartbeat_s=3.0)
    taken = [i / 2 for i in range(20) if _take(choice, i / 2, _scene(100))]
    assert taken == [0.0, 3.0, 6.0, 9.0]
    assert choice.num_still == 16


def test_noise_is_still_and_a_small_change_is_not() -> None:
    noise = np.random.default_rng(0)
    choice = LiveChoice(fps=2.0)
    for i in range(6):
        noisy = np.clip(100 + noise.normal(0, 5, (480, 640, 3)), 0, 255).astype(np.uint8)
        assert _take(choice, i / 2, noisy) == (i == 0)
    noisy[200:215, 300:330] = 255
    assert _take(choice, 3.0, noisy)


def test_slow_drift_is_noticed_because_the_last_taken_frame_is_what_counts() -> None:
    choice = LiveChoice(fps=2.0, heartbeat_s=1e9)
    taken = [i for i in range(12) if _take(choice, i / 2, _scene(100 + i))]
    assert taken == [0, 4, 8]


def test_another_size_is_another_picture() -> None:
    choice = LiveChoice(fps=2.0)
    assert _take(choice, 0.0, _scene(9, 4, 300))
    assert _take(choice, 1.0, _scene(9, 300, 4))


def test_late_frames_are_dropped_and_counted() -> None:
    choice = LiveChoice(fps=2.0)
    order = [0.0, 1.0, 0.5, 1.0, 2.0, 1.9]
    taken = [t for i, t in enumerate(order) if _take(choice, t, _scene(40 * (i % 6)))]
    assert taken == [0.0, 1.0, 2.0]
    assert choice.num_late == 3
