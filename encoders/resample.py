"""Sound at one rate → the same sound at another, piece by piece."""

from typing import Literal

import numpy as np
import soxr

from sensorium.encoders.media import Samples

Quality = Literal["HQ", "LQ"]


class Resampler:
    """One stream of mono sound from `from_hz` to `to_hz`; any split gives the same samples.

    Output sample i is of media time `i / to_hz`: what the filter looks ahead is held back, never
    shifted. `quality` is soxr's: "HQ" (20 bits) holds back at most 41 ms and "LQ" (16 bits, a lower
    edge of the band) at most 22 ms of sound at 16 kHz and above, from 8 kHz up to 116 and 62 ms.
    At equal rates samples pass untouched. Raises ValueError for a rate that isn't positive.
    """

    def __init__(self, from_hz: int, to_hz: int, *, quality: Quality = "HQ") -> None:
        if from_hz <= 0 or to_hz <= 0:
            raise ValueError(f"sample rates must be positive, not {from_hz} and {to_hz} Hz")
        self._from_hz = from_hz
        self._to_hz = to_hz
        self._quality = quality
        self.reset()

    @property
    def delay_samples(self) -> int:
        """Samples (at `to_hz`) held back now: exactly what `flush` would return."""
        total = (2 * self._num_pushed * self._to_hz + self._from_hz) // (2 * self._from_hz)
        return total - self._num_returned

    def push(self, samples: Samples) -> Samples:
        """Return the samples that `samples` complete; both float32 [n], any n."""
        return self._resample(samples, last=False)

    def flush(self) -> Samples:
        """Return what is still held back, as if silence followed, and begin afresh."""
        tail = self._resample(np.zeros(0, np.float32), last=True)
        self.reset()
        return tail

    def reset(self) -> None:
        """Drop what is held back and begin afresh."""
        self._num_pushed = self._num_returned = 0
        self._stream = (
            None
            if self._from_hz == self._to_hz
            else soxr.ResampleStream(
                self._from_hz, self._to_hz, 1, dtype="float32", quality=self._quality
            )
        )

    def _resample(self, samples: Samples, *, last: bool) -> Samples:
        if self._stream is None:
            return samples
        resampled: Samples = self._stream.resample_chunk(samples, last=last)
        self._num_pushed += len(samples)
        self._num_returned += len(resampled)
        return resampled
