"""Who has the floor: the end of a turn and barge-in, counted in media time, never in wall time."""

from dataclasses import dataclass
from enum import Enum

from sensorium.gateway.configuration import TurnDetection

WINDOW_SAMPLES = 512
"""Samples of one voice-activity window at `VAD_RATE_HZ` (silero-vad's only size at 16 kHz)."""
VAD_RATE_HZ = 16_000
WINDOW_MS = 1000 * WINDOW_SAMPLES // VAD_RATE_HZ
"""Media time of a window, at any rate."""

_ONSET_WINDOWS = 2
"""Windows of speech before it is believed: a click is one window, a syllable isn't."""
_HYSTERESIS = 0.15
"""Speech ends below `threshold - 0.15`: a soft syllable in a sentence is no silence."""
_PAUSE_WINDOWS = 6
"""Windows of silence (192 ms) after which a turn may be about to end; words have shorter gaps."""
_SEMANTIC_SILENCE_MS = {"low": 1600, "medium": 900, "auto": 900, "high": 500}


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceActivity:
    """Verdict on the session's next unscored window: the probability that it holds speech."""

    probability: float


class Change(Enum):
    """What a window changed. PAUSED: the turn may be about to stop."""

    NONE = 0
    STARTED = 1
    PAUSED = 2
    STOPPED = 3


def window_samples(rate_hz: int) -> int:
    """Return how many samples a window has at `rate_hz`; ValueError unless they are whole."""
    if rate_hz <= 0 or rate_hz * WINDOW_MS % 1000:
        raise ValueError(
            f"at {rate_hz} Hz a window of {WINDOW_MS} ms isn't a whole number of samples; turns "
            "are found at multiples of 125 Hz, such as 8000, 16000, 24000 or 48000"
        )
    return rate_hz * WINDOW_MS // 1000


class TurnDetector:
    """Finds where speech starts and stops in a row of windows.

    Speech starts with the second window in a row at or above the threshold and stops after
    `silence_duration_ms` below it. `semantic_vad` is judged by sound alone, with a longer silence
    for a lower eagerness.
    """

    def __init__(self, detection: TurnDetection) -> None:
        self.configure(detection)
        self.speaking = False
        self._run_windows = 0
        self._silent_windows = 0

    def configure(self, detection: TurnDetection) -> None:
        """Use other thresholds from the next window on."""
        semantic = detection.kind == "semantic_vad"
        self._threshold = detection.threshold
        self._silence_ms = (
            _SEMANTIC_SILENCE_MS[detection.eagerness] if semantic else detection.silence_duration_ms
        )

    def reset(self, *, speaking: bool = False) -> None:
        """Begin anew, in silence or in the middle of speech."""
        self.speaking = speaking
        self._run_windows = self._silent_windows = 0

    @property
    def onset_windows(self) -> int:
        """Windows of speech heard so far that have not made a turn yet."""
        return self._run_windows

    def hear(self, probability: float) -> Change:
        """Take one more window into account."""
        if not self.speaking:
            self._run_windows = self._run_windows + 1 if probability >= self._threshold else 0
            if self._run_windows < _ONSET_WINDOWS:
                return Change.NONE
            self.reset(speaking=True)
            return Change.STARTED
        if probability >= self._threshold - _HYSTERESIS:
            self._silent_windows = 0
            return Change.NONE
        self._silent_windows += 1
        if self._silent_windows * WINDOW_MS < self._silence_ms:
            return Change.PAUSED if self._silent_windows == _PAUSE_WINDOWS else Change.NONE
        self.reset()
        return Change.STOPPED
