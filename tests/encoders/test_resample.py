"""Sound at another rate: the same samples for any split, each at its own media time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.encoders.media import Samples
from sensorium.encoders.resample import Quality, Resampler

RATES = [(24_000, 16_000), (16_000, 24_000), (8_000, 24_000), (44_100, 24_000)]


def tone(rate_hz: int, seconds: float = 0.5) -> Samples:
    times = np.arange(round(rate_hz * seconds)) / rate_hz
    return (0.5 * np.sin(2 * np.pi * 440 * times)).astype(np.float32)


def in_pieces(resampler: Resampler, samples: Samples, cuts: list[int]) -> Samples:
    pieces = np.split(samples, sorted(min(cut, len(samples)) for cut in cuts))
    return np.concatenate([*map(resampler.push, pieces), resampler.flush()])


@pytest.mark.parametrize("rates", RATES)
@given(cuts=st.lists(st.integers(0, 4_000), max_size=12))
@settings(max_examples=25, deadline=None)
def test_any_split_gives_the_samples_of_the_whole(rates: tuple[int, int], cuts: list[int]) -> None:
    noise = np.random.default_rng(1).standard_normal(4_000).astype(np.float32)
    whole = in_pieces(Resampler(*rates), noise, [])
    np.testing.assert_array_equal(in_pieces(Resampler(*rates), noise, cuts), whole)


def test_single_samples_give_the_samples_of_the_whole() -> None:
    sound = tone(24_000, 0.1)
    whole = in_pieces(Resampler(24_000, 16_000), sound, [])
    pieces = in_pieces(Resampler(24_000, 16_000), sound, list(range(len(sound))))
    np.testing.assert_array_equal(pieces, whole)


@pytest.mark.parametrize("quality", ["HQ", "LQ"])
@pytest.mark.parametrize("rates", RATES)
def test_sound_keeps_its_time(rates: tuple[int, int], quality: Quality) -> None:
    from_hz, to_hz = rates
    resampled = in_pieces(Resampler(from_hz, to_hz, quality=quality), tone(from_hz), [777])
    expected = tone(to_hz)
    assert len(resampled) == len(expected)
    middle = slice(to_hz // 10, -to_hz // 10)
    np.testing.assert_allclose(resampled[middle], expected[middle], atol=2e-4)


@pytest.mark.parametrize("rates", RATES)
@given(sizes=st.lists(st.integers(0, 700), max_size=8))
@settings(max_examples=25, deadline=None)
def test_its_delay_is_what_flush_returns(rates: tuple[int, int], sizes: list[int]) -> None:
    resampler = Resampler(*rates)
    for size in sizes:
        resampler.push(np.ones(size, np.float32))
    delay = resampler.delay_samples
    assert len(resampler.flush()) == delay
    assert resampler.delay_samples == 0


@pytest.mark.parametrize(
    ("rates", "quality", "most_ms"),
    [
        ((24_000, 16_000), "HQ", 41),
        ((24_000, 16_000), "LQ", 22),
        ((44_100, 16_000), "HQ", 41),
        ((44_100, 24_000), "LQ", 22),
        ((8_000, 16_000), "HQ", 116),
        ((8_000, 16_000), "LQ", 62),
    ],
)
def test_its_delay_is_bounded(rates: tuple[int, int], quality: Quality, most_ms: int) -> None:
    resampler = Resampler(*rates, quality=quality)
    delays = []
    for sample in tone(rates[0]):
        resampler.push(sample[None])
        delays.append(resampler.delay_samples)
    assert 0 < max(delays) <= most_ms * rates[1] / 1000
    assert min(delays) >= 0


def test_equal_rates_pass_samples_untouched() -> None:
    resampler = Resampler(16_000, 16_000)
    sound = tone(16_000)
    assert resampler.push(sound) is sound
    assert (resampler.delay_samples, len(resampler.flush())) == (0, 0)


def test_nothing_of_before_is_left_after_a_reset() -> None:
    resampler = Resampler(24_000, 16_000)
    resampler.push(tone(24_000))
    resampler.reset()
    assert not in_pieces(resampler, np.zeros(4_000, np.float32), [500]).any()


@pytest.mark.parametrize("rates", [(0, 16_000), (16_000, -1)])
def test_rate_that_is_none_is_refused(rates: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"must be positive, not {rates[0]} and {rates[1]} Hz"):
        Resampler(*rates)
