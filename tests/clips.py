"""The recordings of tests/data as mono float32 at 16 kHz, and texts reduced to their words."""

import wave
from pathlib import Path

import numpy as np
import soxr

from sensorium.encoders.media import MediaFrame, Pts, Samples

DATA = Path(__file__).parent / "data"
RATE_HZ = 16_000

JFK = (
    "and so my fellow americans ask not what your country can do for you "
    "ask what you can do for your country"
)


def load_clip(name: str) -> Samples:
    """Read a 16-bit WAV file of tests/data."""
    with wave.open(str(DATA / name)) as file:
        rate_hz = file.getframerate()
        pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    samples = (pcm / 32768).astype(np.float32)
    if rate_hz != RATE_HZ:
        return np.asarray(soxr.resample(samples, rate_hz, RATE_HZ), np.float32)
    return samples


def frame(samples: Samples, start: int = 0) -> MediaFrame:
    """Wrap samples that begin `start` samples after their clip."""
    return MediaFrame(pts=Pts(start), rate_hz=RATE_HZ, data=samples)


def plain(text: str) -> str:
    """Return the words of a text in lower case, without punctuation."""
    return " ".join("".join(c for c in text.lower() if c.isalnum() or c == " ").split())
