"""From a stream's samples to the sound of turns: scored windows, pre-roll, start and stop.

Sound moves on only with the verdict on its window, so that turns don't depend on how it was split
or how fast it came. Without turn detection all sound belongs to the turn that the client commits.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from sensorium.encoders.media import Samples
from sensorium.gateway.configuration import TurnDetection
from sensorium.gateway.turns import (
    VAD_RATE_HZ,
    WINDOW_MS,
    WINDOW_SAMPLES,
    Change,
    TurnDetector,
    VoiceActivity,
)

_EMPTY: Samples = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Heard:
    """What a verdict means: sound of the turn, and whether the turn began or ended with it."""

    sound: Samples
    change: Change


class Listener:
    """The ear of one stream. `score` is called with windows that want a verdict, in order."""

    def __init__(
        self, detection: TurnDetection | None, score: Callable[[Iterable[Samples]], None]
    ) -> None:
        self._score = score
        self._detection = detection
        self._detector = TurnDetector(detection or TurnDetection())
        self._rest = _EMPTY
        self._unscored: deque[Samples] = deque()
        self._stale_verdicts = 0
        self._preroll: deque[Samples] = deque()
        self._num_passed = 0

    @property
    def position_ms(self) -> int:
        """Media time up to which sound was judged or committed."""
        return self._num_passed * 1000 // VAD_RATE_HZ

    @property
    def num_unscored(self) -> int:
        """Samples that still wait for a verdict."""
        return len(self._unscored) * WINDOW_SAMPLES + len(self._rest)

    @property
    def is_detecting(self) -> bool:
        """Whether turns are found by sound."""
        return self._detection is not None

    def configure(self, detection: TurnDetection | None, *, in_turn: bool) -> Samples:
        """Change turn detection; returns sound that now belongs to a manual turn."""
        was_detecting, self._detection = self.is_detecting, detection
        if detection is None:
            sound = self.take_unscored() if was_detecting and in_turn else _EMPTY
            self._preroll.clear()
            return sound
        self._detector.configure(detection)
        if not was_detecting:
            self._detector.reset(speaking=in_turn)
        return _EMPTY

    def append(self, samples: Samples) -> Samples:
        """Take more sound; returns what passes at once, which is all of it without detection."""
        if self._detection is None:
            self._num_passed += len(samples)
            return samples
        self._rest = np.concatenate([self._rest, samples]) if len(self._rest) else samples
        count = len(self._rest) // WINDOW_SAMPLES
        windows = [self._rest[i * WINDOW_SAMPLES : (i + 1) * WINDOW_SAMPLES] for i in range(count)]
        self._rest = self._rest[count * WINDOW_SAMPLES :].copy()
        self._unscored.extend(windows)
        self._score(windows)
        return _EMPTY

    def hear(self, verdict: VoiceActivity, *, in_turn: bool) -> Heard | None:
        """Move on by one window; None if nothing of a turn is in it."""
        if self._stale_verdicts:
            self._stale_verdicts -= 1
            return None
        window = self._unscored.popleft()
        self._num_passed += WINDOW_SAMPLES
        change = self._detector.hear(verdict.probability)
        if in_turn:
            return Heard(window, change)
        self._preroll.append(window)
        if change is Change.STARTED:
            sound = np.concatenate(self._preroll)
            self._preroll.clear()
            return Heard(sound, change)
        padding_ms = self._detection.prefix_padding_ms if self._detection else 0
        room = -(-padding_ms // WINDOW_MS) + self._detector.onset_windows
        while len(self._preroll) > room:
            self._preroll.popleft()
        return None

    def take_unscored(self) -> Samples:
        """Hand over, without a verdict, what still waits for one (a commit can't wait for it)."""
        sound = np.concatenate([*self._unscored, self._rest])
        self._stale_verdicts += len(self._unscored)
        self._unscored.clear()
        self._rest = _EMPTY
        self._num_passed += len(sound)
        return sound

    def end_turn(self) -> None:
        """The turn is over, by a commit or a cap: what comes next is judged afresh."""
        self._detector.reset()
        self._preroll.clear()
