"""Sound of any rate: the same turns and samples for any packets, each window with its verdict."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest
from clips import load_clip
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.core.sources import resolve
from sensorium.encoders.media import Samples
from sensorium.encoders.resample import Resampler
from sensorium.encoders.vad import SpeechDetector
from sensorium.gateway.configuration import AudioFormat, TurnDetection
from sensorium.gateway.ingest import Timeline
from sensorium.gateway.listening import Listener
from sensorium.gateway.turns import WINDOW_MS, Change, VoiceActivity

RATE_HZ = 24_000
WINDOW = 768
"""Samples of a window at RATE_HZ."""
LOUD = 0.1


def noise(seconds: float, level: float = 1.0, rate_hz: int = RATE_HZ) -> Samples:
    values = np.random.default_rng(0).uniform(-level, level, round(seconds * rate_hz))
    return values.astype(np.float32)


def speech(rate_hz: int = RATE_HZ) -> Samples:
    """Return two loud stretches from 496 and 2128 ms on, half-way through a window."""
    stretches = [(0.496, 0.01), (0.736, 1.0), (0.896, 0.01), (0.416, 1.0), (0.8, 0.01)]
    return np.concatenate([noise(seconds, level, rate_hz) for seconds, level in stretches])


SPEECH = speech()


def loudness(window: Samples) -> float:
    return 0.9 if np.sqrt(np.mean(window**2)) > LOUD else 0.01


@dataclass(frozen=True)
class Turn:
    start_ms: int
    stop_ms: int
    sound: Samples


class Ear:
    """A listener and what it found; `asked` are the windows without a verdict yet."""

    def __init__(self, rate_hz: int = RATE_HZ) -> None:
        self.asked: list[Samples] = []
        self.found: list[Turn] = []
        self.listener = Listener(TurnDetection(), self._ask, rate_hz=rate_hz)
        self._turn: list[Samples] = []
        self._start_ms = 0

    def hear(self, probability: float) -> None:
        verdict = VoiceActivity(probability=probability)
        heard = self.listener.hear(verdict, in_turn=bool(self._turn))
        if heard is None:
            return
        self._turn.append(heard.sound)
        if heard.change is Change.STARTED:
            self._start_ms = self.listener.position_ms
        if heard.change is Change.STOPPED:
            sound = np.concatenate(self._turn)
            self.found.append(Turn(self._start_ms, self.listener.position_ms, sound))
            self._turn = []
            self.listener.end_turn()

    def hear_all(self) -> None:
        asked, self.asked = self.asked, []
        for window in asked:
            self.hear(loudness(window))

    def _ask(self, windows: Iterable[Samples]) -> None:
        self.asked += windows


def turns_in(sound: Samples, cuts: Iterable[int] = (), rate_hz: int = RATE_HZ) -> list[Turn]:
    ear = Ear(rate_hz)
    for piece in np.split(sound, sorted(min(cut, len(sound)) for cut in cuts)):
        ear.listener.append(piece)
        ear.hear_all()
    return ear.found


def assert_same(found: list[Turn], expected: list[Turn]) -> None:
    for turn, other in zip(found, expected, strict=True):
        assert (turn.start_ms, turn.stop_ms) == (other.start_ms, other.stop_ms)
        np.testing.assert_array_equal(turn.sound, other.sound)


@given(cuts=st.lists(st.integers(0, len(SPEECH)), max_size=20))
@settings(max_examples=30, deadline=None)
def test_packets_change_neither_turns_nor_samples(cuts: list[int]) -> None:
    whole = turns_in(SPEECH)
    assert len(whole) == 2
    assert_same(turns_in(SPEECH, cuts), whole)


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 48_000])
def test_a_turn_is_the_stretch_of_sound_that_its_times_tell(rate_hz: int) -> None:
    sound = speech(rate_hz)
    turns = turns_in(sound, range(0, len(sound), 480), rate_hz)
    assert [turn.start_ms for turn in turns] == [480 + 2 * WINDOW_MS, 2112 + 2 * WINDOW_MS]
    for turn in turns:
        stop = turn.stop_ms * rate_hz // 1000
        np.testing.assert_array_equal(turn.sound, sound[stop - len(turn.sound) : stop])


def test_each_window_is_judged_by_the_same_sound_at_the_detectors_rate() -> None:
    ear = Ear()
    for piece in np.array_split(SPEECH, 77):
        ear.listener.append(piece)
    resampler = Resampler(RATE_HZ, 16_000, quality="LQ")
    expected = np.concatenate([resampler.push(SPEECH), resampler.flush()])
    heard = np.concatenate(ear.asked)
    np.testing.assert_array_equal(heard, expected[: len(heard)])
    assert {len(window) for window in ear.asked} == {512}
    assert len(SPEECH) // WINDOW - len(ear.asked) <= 1


def test_sound_at_the_detectors_rate_is_judged_as_it_is_at_once() -> None:
    ear = Ear(16_000)
    sound = noise(0.1, rate_hz=16_000)
    ear.listener.append(sound)
    np.testing.assert_array_equal(np.concatenate(ear.asked), sound[: 3 * 512])


def test_all_that_was_not_judged_is_handed_over() -> None:
    ear = Ear()
    ear.listener.append(SPEECH)
    for _ in range(7):
        ear.hear(0.01)
    assert ear.listener.num_unscored == len(SPEECH) - 7 * WINDOW
    np.testing.assert_array_equal(ear.listener.take_unscored(), SPEECH[7 * WINDOW :])
    assert ear.listener.num_unscored == 0
    assert ear.listener.position_ms == len(SPEECH) * 1000 // RATE_HZ


@pytest.mark.parametrize("num_late", [0, 3])
@pytest.mark.parametrize("before", [5_000, WINDOW * 9 + 400])
def test_what_follows_a_hand_over_is_heard_as_from_its_own_beginning(
    before: int, num_late: int
) -> None:
    ear = Ear()
    ear.listener.append(noise(1.0)[:before])
    asked, ear.asked = ear.asked, []
    for window in asked[: len(asked) - num_late]:
        ear.hear(0.01 * loudness(window))
    ear.listener.take_unscored()
    ear.listener.end_turn()
    ear.listener.append(SPEECH)
    for _ in range(num_late):
        ear.hear(0.9)  # of windows that were handed over
    ear.hear_all()
    expected = turns_in(SPEECH)
    assert [t.start_ms - before * 1000 // RATE_HZ for t in ear.found] == pytest.approx(
        [t.start_ms for t in expected], abs=1
    )
    for turn, other in zip(ear.found, expected, strict=True):
        np.testing.assert_array_equal(turn.sound, other.sound)


@pytest.mark.parametrize("in_turn", [False, True])
def test_sound_on_its_way_is_the_manual_turns_or_nobodys(in_turn: bool) -> None:
    ear = Ear()
    ear.listener.append(SPEECH[:5_000])
    asked = len(ear.asked)
    ear.hear(0.01)
    sound = ear.listener.configure(None, in_turn=in_turn)
    np.testing.assert_array_equal(sound, SPEECH[WINDOW:5_000] if in_turn else [])
    assert ear.listener.num_unscored == 0
    np.testing.assert_array_equal(ear.listener.append(SPEECH[5_000:]), SPEECH[5_000:])
    for _ in range(asked - 1):
        ear.hear(0.9)
    assert not ear.found
    assert ear.listener.position_ms == len(SPEECH) * 1000 // RATE_HZ


def test_detection_begins_afresh_after_manual_turns() -> None:
    ear = Ear()
    ear.listener.append(noise(0.3, 0.01))
    ear.hear_all()
    ear.listener.configure(None, in_turn=False)
    ear.listener.append(noise(0.0333))
    ear.listener.configure(TurnDetection(), in_turn=False)
    ear.listener.append(SPEECH)
    ear.hear_all()
    for turn, other in zip(ear.found, turns_in(SPEECH), strict=True):
        np.testing.assert_array_equal(turn.sound, other.sound)


@pytest.mark.parametrize("rate_hz", [11_025, 22_050, 44_100, 0, -8_000])
def test_rate_without_whole_windows_is_refused(rate_hz: int) -> None:
    with pytest.raises(ValueError, match=f"at {rate_hz} Hz a window of 32 ms isn't a whole"):
        Ear(rate_hz)


@pytest.mark.parametrize("name", ["jfk_16k.wav", "es_sentence_16k.wav", "vctk_p225_003.wav"])
def test_real_speech_has_the_same_turns_at_both_rates(name: str) -> None:
    pause = np.zeros(16_000, np.float32)
    sound = np.concatenate([pause, load_clip(name), pause])
    sent = Resampler(16_000, 24_000)
    recorded = np.concatenate([sent.push(sound), sent.flush()])
    pcm = (np.clip(recorded, -1, 1) * 32767).astype("<i2").tobytes()
    detector = SpeechDetector(resolve("silero-vad", None))

    def heard_at(rate_hz: int) -> list[Turn]:
        ear, timeline = Ear(rate_hz), Timeline(AudioFormat(), rate_hz)
        ear.listener.append(timeline.append(pcm))
        state = detector.open()
        for window in ear.asked:
            ear.hear(detector.score([window], [state])[0])
        return ear.found

    at_16k, at_24k = heard_at(16_000), heard_at(24_000)
    assert at_16k
    for turn, other in zip(at_24k, at_16k, strict=True):
        assert abs(turn.start_ms - other.start_ms) <= WINDOW_MS
        assert abs(turn.stop_ms - other.stop_ms) <= WINDOW_MS
        assert abs(len(turn.sound) / 24 - len(other.sound) / 16) <= 2 * WINDOW_MS
