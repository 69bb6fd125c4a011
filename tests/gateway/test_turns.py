"""The endpoint in media time: windows in, starts and stops out."""

import pytest

from sensorium.gateway.configuration import TurnDetection
from sensorium.gateway.turns import WINDOW_MS, Change, TurnDetector


def changes(detection: TurnDetection, probabilities: list[float]) -> list[tuple[int, Change]]:
    detector = TurnDetector(detection)
    found = enumerate(detector.hear(p) for p in probabilities)
    return [(i, change) for i, change in found if change is not Change.NONE]


def test_a_click_is_not_speech() -> None:
    assert changes(TurnDetection(), [0.9, 0.0, 0.9, 0.0, 0.9]) == []


def test_speech_starts_with_its_second_window() -> None:
    assert changes(TurnDetection(), [0.0, 0.9, 0.9, 0.9]) == [(2, Change.STARTED)]


@pytest.mark.parametrize("silence_ms", [64, 200, 500, 1000])
def test_speech_stops_after_the_silence_asked_for(silence_ms: int) -> None:
    detection = TurnDetection(silence_duration_ms=silence_ms)
    windows = -(-silence_ms // WINDOW_MS)
    found = changes(detection, [0.9] * 5 + [0.0] * 60)
    assert [c for c in found if c[1] is not Change.PAUSED] == [
        (1, Change.STARTED),
        (4 + windows, Change.STOPPED),
    ]


def test_a_pause_is_told_once_before_the_stop() -> None:
    found = changes(TurnDetection(), ([0.9] * 5 + [0.0] * 8) * 2 + [0.0] * 20)
    assert [change for _, change in found] == [
        Change.STARTED,
        Change.PAUSED,
        Change.PAUSED,
        Change.STOPPED,
    ]
    assert changes(TurnDetection(), [0.9] * 5 + [0.0] * 5) == [(1, Change.STARTED)]


def test_a_pause_shorter_than_that_is_part_of_the_turn() -> None:
    pause = [0.0] * (480 // WINDOW_MS)
    found = changes(TurnDetection(), [0.9] * 5 + pause + [0.9] * 5)
    assert Change.STOPPED not in [change for _, change in found]


def test_a_soft_syllable_does_not_count_as_silence() -> None:
    assert changes(TurnDetection(), [0.9] * 5 + [0.4] * 60) == [(1, Change.STARTED)]
    assert changes(TurnDetection(), [0.9] * 5 + [0.3] * 60)[-1][1] is Change.STOPPED


def test_a_higher_threshold_needs_clearer_speech() -> None:
    assert changes(TurnDetection(threshold=0.8), [0.7] * 10) == []


def test_semantic_turns_wait_longer_the_less_eager_they_are() -> None:
    def stop(eagerness: str) -> int:
        detection = TurnDetection(kind="semantic_vad", eagerness=eagerness)  # type: ignore[arg-type]  # str literals
        return changes(detection, [0.9] * 5 + [0.0] * 100)[-1][0]

    assert stop("high") < stop("auto") == stop("medium") < stop("low")
