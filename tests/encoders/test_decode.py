"""Files of sound, good and bad, through the decoder's child process."""

import asyncio
import io
import wave
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import av
import numpy as np
import pytest

from sensorium.encoders.decode import DecodeLimits, decode, decode_stream
from sensorium.encoders.media import MediaError, Samples

RATE_HZ = 16_000
SECONDS = 1.5
TONE_HZ = 440.0


def tone(rate_hz: int) -> Samples:
    times = np.arange(int(SECONDS * rate_hz)) / rate_hz
    return (0.5 * np.sin(2 * np.pi * TONE_HZ * times)).astype(np.float32)


def encoded(container: str, codec: str, rate_hz: int = 48_000, layout: str = "mono") -> bytes:
    """Return the tone in a file of that format."""
    file = io.BytesIO()
    output: Any = av.open(file, "w", format=container)
    with output:
        stream = output.add_stream(codec, rate=rate_hz, layout=layout)
        sound = np.tile(tone(rate_hz), (2 if layout == "stereo" else 1, 1))
        frame = av.AudioFrame.from_ndarray(sound, format="fltp", layout=layout)
        frame.sample_rate = rate_hz
        target = (stream.codec_context.format, layout, rate_hz)
        fifo = av.AudioResampler(*target, frame_size=stream.codec_context.frame_size or 1024)
        for part in [*fifo.resample(frame), *fifo.resample(None), None]:
            output.mux(stream.encode(part))
    return file.getvalue()


def wav(samples: bytes, *, rate_hz: int = RATE_HZ, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setnchannels(channels)
        output.setsampwidth(2)
        output.setframerate(rate_hz)
        output.writeframes(samples)
    return file.getvalue()


def loudest_hz(samples: Samples) -> float:
    spectrum = np.abs(np.fft.rfft(samples))
    return float(np.argmax(spectrum)) * RATE_HZ / len(samples)


@pytest.mark.parametrize(
    ("container", "codec", "rate_hz", "layout"),
    [
        ("wav", "pcm_s16le", 8_000, "mono"),
        ("wav", "pcm_mulaw", 8_000, "mono"),
        ("wav", "pcm_f32le", 44_100, "stereo"),
        ("flac", "flac", 44_100, "stereo"),
        ("mp3", "libmp3lame", 44_100, "mono"),
        ("ogg", "libopus", 48_000, "mono"),
        ("webm", "libopus", 48_000, "stereo"),
        ("ipod", "aac", 44_100, "mono"),
        ("mp4", "aac", 48_000, "stereo"),
    ],
)
async def test_formats(container: str, codec: str, rate_hz: int, layout: str) -> None:
    samples = await decode(encoded(container, codec, rate_hz, layout), RATE_HZ)
    assert samples.dtype == np.float32
    assert abs(len(samples) / RATE_HZ - SECONDS) < 0.1
    assert abs(loudest_hz(samples) - TONE_HZ) < 3
    assert 0.3 < np.abs(samples).max() < 0.8


async def test_wav_at_the_wanted_rate_is_exact() -> None:
    samples = (tone(RATE_HZ) * 32768).astype("<i2")
    decoded = await decode(wav(samples.tobytes()), RATE_HZ)
    assert np.array_equal(decoded, samples.astype(np.float32) / 32768)


async def test_stereo_becomes_the_mean_of_its_channels() -> None:
    left_right = np.tile(np.array([8000, -8000], "<i2"), 1600)
    decoded = await decode(wav(left_right.tobytes(), channels=2), RATE_HZ)
    assert len(decoded) == 1600
    assert np.abs(decoded).max() < 1e-4


async def test_numbers_that_are_none_become_sound() -> None:
    file = bytearray(encoded("wav", "pcm_f32le", RATE_HZ))
    data = file.index(b"data") + 8
    file[data : data + 12] = np.array([np.nan, np.inf, -np.inf], "<f4").tobytes()
    samples = await decode(bytes(file), RATE_HZ)
    assert samples[:3].tolist() == [0.0, 1.0, -1.0]


async def test_truncated_file_gives_what_is_there() -> None:
    file = encoded("mp3", "libmp3lame", 44_100)
    samples = await decode(file[: len(file) // 2], RATE_HZ)
    assert 0.4 < len(samples) / RATE_HZ < SECONDS


def picture() -> bytes:
    file = io.BytesIO()
    output: Any = av.open(file, "w", format="mp4")
    with output:
        stream = output.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        for part in (frame, None):
            output.mux(stream.encode(part))
    return file.getvalue()


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: b"", "empty_file"),
        (lambda: b"\0" * 5000, "unsupported_format"),
        (lambda: np.random.default_rng(1).bytes(30_000), "unsupported_format"),
        (lambda: b"RIFF\xff\xff\xff\xffWAVEfmt ", "unsupported_format"),
        (lambda: wav(b""), "no_sound"),
        (lambda: encoded("mp4", "aac")[:300], "unsupported_format"),
        (lambda: b"#EXTM3U\n#EXTINF:9,\n/etc/passwd\n#EXT-X-ENDLIST\n", "unsupported_format"),
        (lambda: b"ffconcat version 1.0\nfile /etc/passwd\n", "unsupported_format"),
        (picture, "no_sound"),
    ],
    ids=[
        "empty",
        "zeros",
        "noise",
        "no-format",
        "no-samples",
        "cut-mp4",
        "m3u8",
        "concat",
        "video",
    ],
)
async def test_what_is_no_sound_says_so(make: Callable[[], bytes], code: str) -> None:
    with pytest.raises(MediaError) as refused:
        await decode(make(), RATE_HZ)
    assert refused.value.code == code
    assert str(refused.value).endswith(".")


async def test_too_much_sound_is_refused_while_it_is_decoded() -> None:
    silence = wav(bytes(2 * 60 * RATE_HZ))
    with pytest.raises(MediaError, match=r"more than 0\.5 minutes") as refused:
        await decode(silence, RATE_HZ, DecodeLimits(max_sound_s=30))
    assert refused.value.code == "too_long"


async def test_decoder_without_memory_is_an_error_of_the_file() -> None:
    with pytest.raises(MediaError) as refused:
        await decode(wav(bytes(3200)), RATE_HZ, DecodeLimits(max_memory_mib=1))
    assert refused.value.code == "unsupported_format"


async def test_child_ends_with_its_reader() -> None:
    stream = decode_stream(wav(bytes(2 * 600 * RATE_HZ)), RATE_HZ)
    async with aclosing(stream) as chunks:
        assert len(await anext(chunks)) > 0
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
