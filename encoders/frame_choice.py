"""Which frames of a video are worth encoding: of a recorded one, and of a camera as it runs.

Pure and torch-free. Frames are taken as numbers or pixels, times are media time; who decodes asks
here first, so that frames nobody wants are never turned into RGB.
"""

import bisect
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sensorium.encoders.media import Pixels

TIME_GRID_S = 0.0015
"""What timestamps may be off for their container's sake: Matroska counts in milliseconds."""

STILL_LEVELS = 4.0
"""Grey levels (of 255) that no part of a picture has changed by in a still scene.

A part is a sixteenth of the height by a sixteenth of the width, averaged: a camera's noise moves it
by less than one level, a line of text that appears on a screen by more than four.
"""

HEARTBEAT_S = 5.0
"""A still scene is shown again after this long."""

_ROUNDING = 1e-6
_PARTS = 16
_SAMPLED_PX = 256
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)


def choose(
    times_s: Sequence[float], *, fps: float, max_frames: int, frames_per_group: int = 2
) -> list[int]:
    """Return the indices of the frames to take of a recorded video, rising.

    `times_s` are the times of all its frames in the order of showing. With `total` of them at a
    constant rate f, n = min(⌊total · fps / f⌋, max_frames, total) is cut to whole groups (but at
    least one), and the frames ⌊linspace(0, total − 1, n)⌋ are taken: Muse's rule, SPEC 4.6. At a
    variable rate f is the mean, n moments are spread over the video in the same way, and what is
    taken is the frame shown at each; one that is shown for long is taken once. Raises ValueError
    where times fall.
    """
    total = len(times_s)
    if total < 2:
        return list(range(total))
    if any(after < before for before, after in itertools.pairwise(times_s)):
        raise ValueError("the times of a video's frames must not fall")
    rate = _rate(times_s)
    per_rate = math.floor(total * fps / rate + _ROUNDING) if rate else 0
    wanted = min(per_rate, max_frames, total)
    whole = max(frames_per_group, wanted // frames_per_group * frames_per_group)
    num = min(whole, total)
    if rate and _is_constant(times_s, rate):
        return [int(index) for index in _spread(total - 1, num)]
    moments = np.linspace(times_s[0], times_s[-1], num)
    return sorted({bisect.bisect_right(times_s, moment) - 1 for moment in moments})


def _rate(times_s: Sequence[float]) -> float:
    """Return frames a second, 0 if all are at one moment.

    Where whole or half numbers or NTSC's (30000/1001) explain the times as well, it is those: a
    rate a hair too high would cost a frame in `choose`.
    """
    num, span_s = len(times_s) - 1, times_s[-1] - times_s[0]
    if span_s <= 0:
        return 0.0
    for scale in (1.0, 0.5, 1000 / 1001):
        rate = round(num / span_s / scale) * scale
        if rate and abs(span_s - num / rate) < TIME_GRID_S:
            return rate
    return num / span_s


def _is_constant(times_s: Sequence[float], rate: float) -> bool:
    expected = times_s[0] + np.arange(len(times_s)) / rate
    return bool(np.all(np.abs(np.asarray(times_s) - expected) < 2 * TIME_GRID_S))


def _spread(last: int, num: int) -> NDArray[np.int64]:
    """⌊linspace(0, last, num)⌋ as torch rounds it: in float32, the second half from the end.

    In a hundredth of all cases exact integers would name a frame one later than the reference does.
    """
    if num < 2:
        return np.zeros(num, dtype=np.int64)
    steps = np.arange(num, dtype=np.float64)
    step = np.float64(np.float32(last) / np.float32(num - 1))
    values = np.where(steps < num // 2, steps * step, last - (num - 1 - steps) * step)
    return values.astype(np.float32).astype(np.int64)


class LiveChoice:
    """Picks frames of a camera while it runs, counting in media time alone.

    Ask `due` for every frame, and `differs` for those that are due, with their pixels; take what
    passes both. On average at most `fps` frames a second are due: whichever are nearest to the
    moments, so that a camera whose own rate is `fps`, but isn't steady, loses none. One that looks
    like the frame taken last is passed over, unless that was `heartbeat_s` ago.

    What is taken is encoded in groups of two in the order taken, odd with even, however far
    apart: the group has the time of its first frame, and waits for its second. In a still scene
    that is up to `heartbeat_s`; who can't wait ends the clip, which repeats an odd last frame.

    `num_late` frames came out of order (not later than one seen before), `num_skipped` too soon
    after the last, `num_still` looked the same; all of these are dropped.
    """

    def __init__(self, *, fps: float, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.num_late = 0
        self.num_skipped = 0
        self.num_still = 0
        self._period_s = 1 / fps
        self._heartbeat_s = heartbeat_s
        self._seen_s = -math.inf
        self._next_s = -math.inf
        self._taken_s = -math.inf
        self._taken: NDArray[np.float32] | None = None

    def due(self, time_s: float) -> bool:
        """Tell whether the frame of this time may be taken, before it is decoded."""
        if time_s <= self._seen_s:
            self.num_late += 1
            return False
        gap_s = min(time_s - self._seen_s, self._period_s)
        self._seen_s = time_s
        if time_s + gap_s / 2 < self._next_s:  # the frame after it will be nearer
            self.num_skipped += 1
            return False
        self._next_s = max(self._next_s, time_s) + self._period_s
        return True

    def differs(self, time_s: float, pixels: Pixels) -> bool:
        """Tell whether a due frame is worth taking; if so, later ones are compared to it."""
        parts = _parts(pixels)
        is_still = (
            self._taken is not None
            and parts.shape == self._taken.shape
            and float(np.abs(parts - self._taken).max()) < STILL_LEVELS
        )
        if is_still and time_s < self._taken_s + self._heartbeat_s:
            self.num_still += 1
            return False
        self._taken, self._taken_s = parts, time_s
        return True


def _parts(pixels: Pixels) -> NDArray[np.float32]:
    """[H, W, 3] → mean luma of 16 × 16 parts; sides of fewer pixels have a part each."""
    height, width = pixels.shape[:2]
    sampled = pixels[:: max(1, height // _SAMPLED_PX), :: max(1, width // _SAMPLED_PX)]
    rows, columns = min(_PARTS, len(sampled)), min(_PARTS, sampled.shape[1])
    high, wide = len(sampled) // rows, sampled.shape[1] // columns
    whole = sampled[: rows * high, : columns * wide].astype(np.float32) @ _LUMA
    means: NDArray[np.float32] = whole.reshape(rows, high, columns, wide).mean(axis=(1, 3))
    return means
