"""Small files of sound, pictures and video, written by FFmpeg's and Pillow's own encoders."""

import io
import wave
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sensorium.encoders.media import PICTURE_RATE_HZ, Intake, Pixels, Samples

SECONDS = 1.5
TONE_HZ = 440.0
MILLISECONDS = Fraction(1, 1000)

STILLS = Intake(
    encoder="pictures",
    rate_hz=PICTURE_RATE_HZ,
    dtype="uint8",
    shape=(-1, -1, 3),
    cell_px=1,
    max_cells=1 << 20,
)
"""Takes pictures of up to a million pixels as they are."""

VIDEO = Intake(
    encoder="video",
    rate_hz=PICTURE_RATE_HZ,
    dtype="uint8",
    shape=(-1, -1, 3),
    cell_px=8,
    max_cells=64,
    fps=1000.0,
    max_frames=1000,
    frames_per_group=1,
)
"""Takes all frames, of up to 64 x 64 pixels as they are."""


def tone(rate_hz: int, seconds: float = SECONDS) -> Samples:
    """Return a sine, float32 [n]."""
    times = np.arange(int(seconds * rate_hz)) / rate_hz
    return (0.5 * np.sin(2 * np.pi * TONE_HZ * times)).astype(np.float32)


def sound_file(
    container: str,
    codec: str,
    rate_hz: int = 48_000,
    layout: str = "mono",
    samples: Samples | None = None,
) -> bytes:
    """Return samples (by default the tone), equal on all channels, in a file of that format."""
    file = io.BytesIO()
    output: Any = av.open(file, "w", format=container)
    with output:
        experimental = {"strict": "-2"}  # as FFmpeg calls its own Vorbis
        stream = output.add_stream(codec, rate=rate_hz, layout=layout, options=experimental)
        _mux_sound(output, stream, tone(rate_hz) if samples is None else samples, rate_hz)
    return file.getvalue()


def _mux_sound(output: Any, stream: Any, samples: Samples, rate_hz: int) -> None:
    layout = stream.codec_context.layout
    sound = np.tile(samples, (layout.nb_channels, 1))
    frame = av.AudioFrame.from_ndarray(sound, format="fltp", layout=layout.name)
    frame.sample_rate, frame.pts, frame.time_base = rate_hz, 0, Fraction(1, rate_hz)
    target = (stream.codec_context.format, layout.name, rate_hz)
    fifo = av.AudioResampler(*target, frame_size=stream.codec_context.frame_size or 1024)
    for part in [*fifo.resample(frame), *fifo.resample(None), None]:
        output.mux(stream.encode(part))


def wav(samples: bytes, *, rate_hz: int = 16_000, channels: int = 1) -> bytes:
    """Return 16-bit samples in a WAV."""
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setnchannels(channels)
        output.setsampwidth(2)
        output.setframerate(rate_hz)
        output.writeframes(samples)
    return file.getvalue()


def noise(height: int, width: int, channels: int = 3, seed: int = 1) -> NDArray[np.uint8]:
    """Return random pixels [height, width, channels]."""
    values = np.random.default_rng(seed).integers(0, 256, (height, width, channels))
    return values.astype(np.uint8)


def picture_file(image: Image.Image, format: str, **options: Any) -> bytes:
    """Return a picture in a file of that format."""
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def grey_frames(levels: Iterable[int], height: int = 64, width: int = 64) -> list[Pixels]:
    """Return plain frames, one of each grey level."""
    return [np.full((height, width, 3), level, np.uint8) for level in levels]


def video_file(
    container: str,
    codec: str,
    frames: list[Pixels],
    times_ms: Iterable[int] | None = None,
    *,
    sound: Samples | None = None,
    sound_hz: int = 48_000,
    sound_codec: str = "libopus",
    options: dict[str, str] | None = None,
    pixel_format: str = "yuv420p",
) -> bytes:
    """Return frames [H, W, 3] at these times (by default ten a second), with sound from 0 on."""
    file = io.BytesIO()
    output: Any = av.open(file, "w", format=container)
    with output:
        stream = output.add_stream(codec, rate=10, options=options or {})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = pixel_format
        stream.codec_context.time_base = stream.time_base = MILLISECONDS
        if sound is not None:
            heard = output.add_stream(sound_codec, rate=sound_hz, layout="mono")
        for pixels, time_ms in zip(frames, times_ms or range(0, 1 << 30, 100), strict=False):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = time_ms, MILLISECONDS
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
        if sound is not None:
            _mux_sound(output, heard, sound, sound_hz)
    return file.getvalue()
