"""Decoded media as plain values: frames with a timestamp, and the error for bad bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NewType

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""Mono sound, float32 in [-1, 1], shape [num_samples]."""

Pixels = NDArray[np.uint8]
"""A picture, upright, RGB, shape [height, width, 3]."""

Pts = NewType("Pts", int)
"""Presentation timestamp in ticks of the stream's own rate; for sound, samples from its start."""

PICTURE_RATE_HZ = 1_000_000
"""Ticks per second of pictures and video frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaFrame:
    """Consecutive samples of one stream, whatever it measures: `data` is [n, …], one per tick.

    `pts` counts ticks of `rate_hz` since the start of the stream and belongs to the first sample.
    Sound is float32 [n] at its sample rate; a picture or one frame of a video is uint8
    [1, height, width, 3] at PICTURE_RATE_HZ; readings of six channels would be [n, 6].
    """

    pts: Pts
    rate_hz: int
    data: NDArray[Any]

    @property
    def start_s(self) -> float:
        """Media time at which it begins."""
        return self.pts / self.rate_hz

    @property
    def end_s(self) -> float:
        """Media time at which it ends."""
        return (self.pts + len(self.data)) / self.rate_hz

    def split(self, num_ticks: int) -> "tuple[MediaFrame, MediaFrame]":
        """Return the first `num_ticks` ticks, and the rest."""
        rest = replace(self, pts=Pts(self.pts + num_ticks), data=self.data[num_ticks:])
        return replace(self, data=self.data[:num_ticks]), rest


def joined(frames: Sequence[MediaFrame]) -> tuple[MediaFrame, ...]:
    """Make one frame of each run of frames that follow each other without a gap.

    Example: sound with pts 0 (3 samples), 3 (2 samples) and 7 becomes two frames, of 5 samples at
    pts 0, and the one at 7.
    """
    runs: list[list[MediaFrame]] = []
    for frame in frames:
        last = runs[-1][-1] if runs else None
        follows = last is not None and (
            last.pts + len(last.data) == frame.pts and last.data.shape[1:] == frame.data.shape[1:]
        )
        if follows:
            runs[-1].append(frame)
        else:
            runs.append([frame])
    return tuple(
        run[0] if len(run) == 1 else replace(run[0], data=np.concatenate([f.data for f in run]))
        for run in runs
    )


def picture(pixels: Pixels, time_s: float = 0.0) -> MediaFrame:
    """Return a picture, or the frame of a video that is shown from `time_s` on."""
    pts = Pts(round(time_s * PICTURE_RATE_HZ))
    return MediaFrame(pts=pts, rate_hz=PICTURE_RATE_HZ, data=pixels[None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What an encoder takes, for whoever prepares media for it.

    `dtype` and `shape` are those of one tick of its frames, -1 where any size will do. Pictures are
    sized before they are sent: to a grid of cells of `cell_px` pixels, at most `max_cells` of them
    (encoders/sizing.py). Of a video at most `max_frames` frames are taken, `fps` a second, and
    encoded in groups of `frames_per_group`. `gives_rows`: one embedding per `ticks_per_row` ticks
    of sound, or per cell of a picture or group of frames; otherwise words.
    """

    encoder: str
    rate_hz: int
    dtype: Literal["float32", "uint8"] = "float32"
    shape: tuple[int, ...] = ()
    gives_rows: bool = False
    ticks_per_row: int = 0
    cell_px: int = 0
    max_cells: int = 0
    fps: float = 0.0
    max_frames: int = 0
    frames_per_group: int = 1

    def check(self, frame: MediaFrame) -> None:
        """Raise MediaError unless the encoder can take this frame."""
        found = frame.data.shape[1:]
        fits = len(found) == len(self.shape) and all(
            wanted in (-1, size) for wanted, size in zip(self.shape, found, strict=True)
        )
        if not fits or frame.data.dtype != self.dtype or not len(frame.data):
            sizes = ", ".join(["n", *("any" if size < 0 else str(size) for size in self.shape)])
            raise MediaError(
                "bad_frame",
                f"{self.encoder} takes {self.dtype} [{sizes}], "
                f"got {frame.data.dtype} {list(frame.data.shape)}",
            )


class MediaError(Exception):
    """Bytes from outside that can't be decoded, or that exceed a limit.

    `code` is stable and short (`unsupported_format`, `truncated`, `too_long`, …); the message
    says what was wrong and which limit or format would be right.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
