"""From a stream's samples to the sound of turns: scored windows, pre-roll, start and stop.

Sound moves on only with the verdict on its window, so that turns don't depend on how it was split
or how fast it came. Without turn detection all sound belongs to the turn that the client commits.

Sound may have any rate at which a window is a whole number of samples. The detector hears it at its
own: window k of the sound gets the verdict on window k of the same sound resampled, which comes a
little later (at most 22 ms of sound for 16 kHz and above) but is of the same media time.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from sensorium.encoders.media import Samples
from sensorium.encoders.resample import Resampler
from sensorium.gateway.configuration import TurnDetection
from sensorium.gateway.turns import (
    VAD_RATE_HZ,
    WINDOW_MS,
    WINDOW_SAMPLES,
    Change,
    TurnDetector,
    VoiceActivity,
    window_samples,
)

_EMPTY: Samples = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Heard:
    """What a verdict means: sound of the turn, and whether the turn began or ended with it."""

    sound: Samples
    change: Change


class _Windows:
    """Cuts a stream into windows of `size` samples; `rest` is the begun one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rest = _EMPTY

    def cut(self, samples: Samples) -> list[Samples]:
        """Return the windows that `samples` complete."""
        sound = np.concatenate([self.rest, samples]) if len(self.rest) else samples
        end = len(sound) - len(sound) % self.size
        self.rest = sound[end:].copy()
        return [sound[start : start + self.size] for start in range(0, end, self.size)]


class Listener:
    """The ear of one stream at `rate_hz`.

    `score` is called with windows that want a verdict, in order: at the detector's rate. Raises
    ValueError for a rate at which a window isn't a whole number of samples.
    """

    def __init__(
        self,
        detection: TurnDetection | None,
        score: Callable[[Iterable[Samples]], None],
        *,
        rate_hz: int,
    ) -> None:
        self._rate_hz = rate_hz
        self._score = score
        self._detection = detection
        self._detector = TurnDetector(detection or TurnDetection())
        self._windows = _Windows(window_samples(rate_hz))
        self._unscored: deque[Samples] = deque()
        # An edge of the band is no matter for a verdict, but its delay is one for every answer.
        self._resampler = Resampler(rate_hz, VAD_RATE_HZ, quality="LQ")
        self._resampled = _Windows(WINDOW_SAMPLES)
        self._num_asked = 0  # of the unscored windows, those on which a verdict will come
        self._stale_verdicts = 0
        self._preroll: deque[Samples] = deque()
        self._num_passed = 0

    @property
    def position_ms(self) -> int:
        """Media time up to which sound was judged or committed."""
        return self._num_passed * 1000 // self._rate_hz

    @property
    def position(self) -> int:
        """Samples up to which sound was judged or committed, since the stream began."""
        return self._num_passed

    @property
    def num_unscored(self) -> int:
        """Samples that still wait for a verdict."""
        return len(self._unscored) * self._windows.size + len(self._windows.rest)

    @property
    def is_detecting(self) -> bool:
        """Whether turns are found by sound."""
        return self._detection is not None

    def configure(self, detection: TurnDetection | None, *, in_turn: bool) -> Samples:
        """Change turn detection; returns sound that now belongs to a manual turn.

        Sound in which no turn was found yet belongs to none.
        """
        was_detecting, self._detection = self.is_detecting, detection
        if detection is None:
            sound = self.take_unscored() if was_detecting else _EMPTY
            self._preroll.clear()
            return sound if in_turn else _EMPTY
        self._detector.configure(detection)
        if not was_detecting:
            self._detector.reset(speaking=in_turn)
        return _EMPTY

    def append(self, samples: Samples) -> Samples:
        """Take more sound; returns what passes at once, which is all of it without detection."""
        if self._detection is None:
            self._num_passed += len(samples)
            return samples
        windows = self._windows.cut(samples)
        self._unscored.extend(windows)
        if self._rate_hz != VAD_RATE_HZ:
            windows = self._resampled.cut(self._resampler.push(samples))
        self._num_asked += len(windows)
        self._score(windows)
        return _EMPTY

    def hear(self, verdict: VoiceActivity, *, in_turn: bool) -> Heard | None:
        """Move on by one window; None if nothing of a turn is in it."""
        if self._stale_verdicts:
            self._stale_verdicts -= 1
            return None
        window = self._unscored.popleft()
        self._num_asked -= 1
        self._num_passed += len(window)
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
        """Hand over, without a verdict, what still waits for one (a commit can't wait for it).

        What comes next is cut into windows, and resampled, from its own beginning.
        """
        sound = np.concatenate([*self._unscored, self._windows.rest])
        self._stale_verdicts += self._num_asked
        self._num_asked = 0
        self._unscored.clear()
        self._windows.rest = self._resampled.rest = _EMPTY
        self._resampler.reset()
        self._num_passed += len(sound)
        return sound

    def end_turn(self) -> None:
        """The turn is over, by a commit or a cap: what comes next is judged afresh."""
        self._detector.reset()
        self._preroll.clear()
