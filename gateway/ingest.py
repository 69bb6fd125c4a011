"""One timeline per stream: bytes of the session's input format → mono float32 at the model's rate.

Positions count all sound ever appended, so that every time told to the peer is on one clock. What
is speech and where a turn ends is decided in turns.py.
"""

import numpy as np
from numpy.typing import NDArray

from sensorium.encoders.media import Samples
from sensorium.encoders.resample import Resampler
from sensorium.gateway.configuration import AudioFormat


def _g711_tables() -> tuple[Samples, Samples]:
    """Return decoding tables of μ-law and A-law (ITU-T G.711), each [256] float32 in [-1, 1]."""
    code = np.arange(256)
    u = ~code & 0xFF
    magnitude = ((((u & 0x0F) << 3) + 0x84) << ((u & 0x70) >> 4)) - 0x84
    mu = np.where(u & 0x80, -magnitude, magnitude)
    a = code ^ 0x55
    segment, mantissa = (a & 0x70) >> 4, (a & 0x0F) << 4
    level = np.where(segment == 0, mantissa + 8, (mantissa + 0x108) << np.maximum(segment - 1, 0))
    alaw = np.where(a & 0x80, level, -level)
    return (mu / 32768).astype(np.float32), (alaw / 32768).astype(np.float32)


_MU_LAW, _A_LAW = _g711_tables()


class Timeline:
    """Decodes and resamples one stream; state survives any split of the bytes.

    `Timeline(format, rate_hz)` resamples with one stateful stream, so that a clip cut into packets
    gives the samples that the whole clip would.
    """

    def __init__(self, audio_format: AudioFormat, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._format = audio_format
        self._odd = b""
        self._resampler = Resampler(audio_format.rate_hz, rate_hz)

    @property
    def format(self) -> AudioFormat:
        """The format that `append` reads."""
        return self._format

    def set_format(self, audio_format: AudioFormat) -> None:
        """Read another format from now on; what the resampler still held is dropped."""
        self._format = audio_format
        self._odd = b""
        self._resampler = Resampler(audio_format.rate_hz, self._rate_hz)

    def reset(self) -> None:
        """Forget a carried odd byte and the resampler's tail."""
        self._odd = b""
        self._resampler.reset()

    def append(self, data: bytes) -> Samples:
        """Return the samples that `data` completes; [n] float32 at the model's rate."""
        return self._resampler.push(self._decode(data))

    def flush(self) -> Samples:
        """Return what the resampler still holds and begin afresh (end of a manual turn)."""
        self._odd = b""
        return self._resampler.flush()

    def _decode(self, data: bytes) -> Samples:
        if self._format.encoding == "pcmu":
            return _MU_LAW[np.frombuffer(data, np.uint8)]
        if self._format.encoding == "pcma":
            return _A_LAW[np.frombuffer(data, np.uint8)]
        if self._odd or len(data) % 2:
            data = self._odd + data
            cut = len(data) - len(data) % 2
            data, self._odd = data[:cut], data[cut:]
        pcm: NDArray[np.int16] = np.frombuffer(data, "<i2")
        return pcm.astype(np.float32) / np.float32(32768)
