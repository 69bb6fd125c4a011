"""Decoded media as plain values: frames with a timestamp, and the error for bad bytes."""

from dataclasses import dataclass
from typing import NewType

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""Mono sound, float32 in [-1, 1], shape [num_samples]."""

Pts = NewType("Pts", int)
"""Presentation timestamp in ticks of the stream's own rate; for sound, samples from its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFrame:
    """A run of consecutive mono samples.

    `pts` counts samples at `rate_hz` since the start of the stream; `samples` is float32 `[n]`.
    """

    pts: int
    rate_hz: int
    samples: Samples


class MediaError(Exception):
    """Bytes from outside that can't be decoded, or that exceed a limit.

    `code` is stable and short (`unsupported_format`, `truncated`, `too_long`, …); the message
    says what was wrong and which limit or format would be right.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
