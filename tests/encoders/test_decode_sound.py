"""Files of sound, good and bad, through a decoder of their own."""

import io
import struct
from collections.abc import Callable

import numpy as np
import pytest
from media_files import (
    SECONDS,
    TONE_HZ,
    grey_frames,
    noise,
    picture_file,
    sound_file,
    tone,
    video_file,
    wav,
)
from PIL import Image

from sensorium.encoders.decode import DecodeLimits, RawSound, decode, decode_stream
from sensorium.encoders.media import MediaError, Samples

RATE_HZ = 16_000


def loudest_hz(samples: Samples) -> float:
    spectrum = np.abs(np.fft.rfft(samples))
    return float(np.argmax(spectrum)) * RATE_HZ / len(samples)


async def refused(file: bytes, limits: DecodeLimits | None = None) -> MediaError:
    with pytest.raises(MediaError) as raised:
        await decode(file, RATE_HZ, limits)
    assert str(raised.value).endswith(".")
    return raised.value


@pytest.mark.parametrize(
    ("container", "codec", "rate_hz", "layout"),
    [
        ("wav", "pcm_s16le", 8_000, "mono"),
        ("wav", "pcm_s24le", 96_000, "5.1"),
        ("wav", "pcm_u8", 22_050, "mono"),
        ("wav", "pcm_mulaw", 8_000, "mono"),
        ("wav", "pcm_alaw", 8_000, "stereo"),
        ("wav", "pcm_f32le", 44_100, "stereo"),
        ("wav", "pcm_f64le", 11_025, "mono"),
        ("flac", "flac", 44_100, "stereo"),
        ("mp3", "libmp3lame", 44_100, "mono"),
        ("ogg", "libopus", 48_000, "mono"),
        ("ogg", "vorbis", 32_000, "stereo"),
        ("webm", "libopus", 48_000, "stereo"),
        ("ipod", "aac", 44_100, "mono"),
        ("mp4", "aac", 48_000, "stereo"),
    ],
)
async def test_formats(container: str, codec: str, rate_hz: int, layout: str) -> None:
    samples = await decode(sound_file(container, codec, rate_hz, layout), RATE_HZ)
    assert samples.dtype == np.float32
    assert abs(len(samples) / RATE_HZ - SECONDS) < 0.1
    assert abs(loudest_hz(samples) - TONE_HZ) < 3
    assert 0.3 < np.abs(samples).max() < 0.8


async def test_wav_at_the_wanted_rate_is_exact() -> None:
    samples = (tone(RATE_HZ) * 32768).astype("<i2")
    decoded = await decode(wav(samples.tobytes()), RATE_HZ)
    assert np.array_equal(decoded, samples.astype(np.float32) / 32768)


async def test_resampled_sound_is_in_time_with_its_original() -> None:
    decoded = await decode(sound_file("wav", "pcm_f32le", 48_000), RATE_HZ)
    assert len(decoded) == SECONDS * RATE_HZ
    assert np.abs(decoded - tone(RATE_HZ))[100:-100].max() < 1e-3


@pytest.mark.parametrize("channels", [2, 3, 64])
async def test_channels_are_averaged_however_many(channels: int) -> None:
    values = np.random.default_rng(channels).integers(-9000, 9000, (1600, channels)).astype("<i2")
    decoded = await decode(wav(values.tobytes(), channels=channels), RATE_HZ)
    assert np.allclose(decoded, values.mean(axis=1) / 32768, atol=1e-6)


@pytest.mark.parametrize(
    ("format", "codec"),
    [
        ("pcm16", "pcm_s16le"),
        ("f32", "pcm_f32le"),
        ("g711_ulaw", "pcm_mulaw"),
        ("g711_alaw", "pcm_alaw"),
    ],
)
async def test_bare_samples_are_those_of_a_wav(format: str, codec: str) -> None:
    file = sound_file("wav", codec, RATE_HZ, "stereo")
    bare = file[file.index(b"data") + 8 :]
    raw = RawSound(format=format, rate_hz=RATE_HZ, num_channels=2)  # type: ignore[arg-type]  # a str
    assert np.array_equal(await decode(bare, RATE_HZ, raw=raw), await decode(file, RATE_HZ))


@pytest.mark.parametrize(("rate_hz", "num_channels"), [(0, 1), (10**7, 1), (8000, 0), (8000, 999)])
async def test_bare_samples_of_no_sensible_form_are_refused(
    rate_hz: int, num_channels: int
) -> None:
    raw = RawSound(format="pcm16", rate_hz=rate_hz, num_channels=num_channels)
    with pytest.raises(MediaError) as raised:
        await decode(bytes(64), RATE_HZ, raw=raw)
    assert raised.value.code == "unsupported_format"
    assert "to" in str(raised.value)


async def test_numbers_that_are_none_are_silent() -> None:
    file = bytearray(sound_file("wav", "pcm_f32le", 48_000))
    data = file.index(b"data") + 8
    bad = np.array([np.nan, np.inf, -np.inf, 1e30], "<f4")
    file[data + 40_000 : data + 40_016] = bad.tobytes()
    good = await decode(sound_file("wav", "pcm_f32le", 48_000), RATE_HZ)
    samples = await decode(bytes(file), RATE_HZ)
    assert np.isfinite(samples).all()
    place = 10_000 // 3
    assert np.abs(samples - good)[place - 100 : place + 100].max() > 0.1
    samples[place - 100 : place + 100] = good[place - 100 : place + 100]
    assert np.abs(samples - good).max() < 1e-4
    raw = RawSound(format="f32", rate_hz=RATE_HZ)
    assert (await decode(bad.tobytes(), RATE_HZ, raw=raw)).tolist() == [0.0, 0.0, 0.0, 1.0]


async def test_truncated_file_gives_what_is_there() -> None:
    file = sound_file("mp3", "libmp3lame", 44_100)
    samples = await decode(file[: len(file) // 2], RATE_HZ)
    assert 0.4 < len(samples) / RATE_HZ < SECONDS


async def test_header_that_promises_an_endless_file_gives_what_is_there() -> None:
    file = bytearray(wav(tone(RATE_HZ).tobytes()))
    for place in (4, file.index(b"data") + 4):
        file[place : place + 4] = b"\xff\xff\xff\xff"
    assert len(await decode(bytes(file), RATE_HZ)) == 2 * SECONDS * RATE_HZ


async def test_rate_that_changes_in_the_middle_is_followed() -> None:
    both = sound_file("mp3", "libmp3lame", 44_100) + sound_file("mp3", "libmp3lame", 24_000)
    samples = await decode(both, RATE_HZ)
    assert abs(len(samples) / RATE_HZ - 2 * SECONDS) < 0.2
    assert abs(loudest_hz(samples[-RATE_HZ:]) - TONE_HZ) < 3


def with_field(file: bytes, offset: int, value: int, size: int) -> bytes:
    """Return a WAV with another number in its format chunk."""
    place = file.index(b"fmt ") + 8 + offset
    return file[:place] + value.to_bytes(size, "little") + file[place + size :]


SECOND = wav(bytes(2 * RATE_HZ))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: b"", "empty_file"),
        (lambda: b"\0" * 5000, "unsupported_format"),
        (lambda: np.random.default_rng(1).bytes(30_000), "unsupported_format"),
        (lambda: b"RIFF\xff\xff\xff\xffWAVEfmt ", "damaged"),
        (lambda: wav(b""), "no_sound"),
        (lambda: sound_file("mp4", "aac")[:300], "truncated"),
        (lambda: b"#EXTM3U\n#EXTINF:9,\n/etc/passwd\n#EXT-X-ENDLIST\n", "unsupported_format"),
        (lambda: b"ffconcat version 1.0\nfile /etc/passwd\n", "unsupported_format"),
        (lambda: video_file("mp4", "mpeg4", grey_frames([0])), "no_sound"),
        (lambda: picture_file(Image.fromarray(noise(8, 8)), "PNG"), "unsupported_format"),
        (lambda: with_field(SECOND, 2, 0, 2), "damaged"),
        (lambda: with_field(SECOND, 2, 0xFFFF, 2), "damaged"),
        (lambda: with_field(SECOND, 4, 0, 4), "damaged"),
        (lambda: with_field(SECOND, 4, 1, 4), "unsupported_format"),
        (lambda: with_field(SECOND, 4, 0x7FFFFFFF, 4), "unsupported_format"),
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
        "picture",
        "no-channels",
        "65535-channels",
        "0-Hz",
        "1-Hz",
        "2-GHz",
    ],
)
async def test_what_is_no_sound_says_so(make: Callable[[], bytes], code: str) -> None:
    assert (await refused(make())).code == code


async def test_too_much_sound_is_refused_while_it_is_decoded() -> None:
    error = await refused(wav(bytes(2 * 60 * RATE_HZ)), DecodeLimits(max_sound_s=30))
    assert error.code == "too_long"
    assert "more than 0.5 minutes" in str(error)


def opus_bomb(hours: float) -> bytes:
    """Return an Ogg file of Opus packets of a byte each: 60 ms of silence."""
    file = io.BytesIO()
    number = 0

    def page(packets: list[bytes], granule: int, flags: int) -> None:
        nonlocal number
        head = struct.pack("<4sBBqIII", b"OggS", 0, flags, granule, 7, number, 0)
        body = bytes([len(packets), *map(len, packets)]) + b"".join(packets)
        number += 1
        whole = head + body
        file.write(whole[:22] + struct.pack("<I", ogg_crc(whole)) + whole[26:])

    page([b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 0, 48_000, 0, 0)], 0, 2)
    page([b"OpusTags" + struct.pack("<II", 0, 0)], 0, 0)
    for index in range(int(hours * 3600 / 0.06 / 255)):
        page([b"\x18"] * 255, (index + 1) * 255 * 2880, 0)
    return file.getvalue()


def ogg_crc(page: bytes) -> int:
    crc = 0
    for byte in page:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1) ^ (0x04C11DB7 if crc & 0x80000000 else 0)
        crc &= 0xFFFFFFFF
    return crc


async def test_opus_bomb_stops_at_the_limit() -> None:
    file = opus_bomb(0.1)
    assert len(file) < 13_000
    num_samples = 0

    async def read() -> None:
        nonlocal num_samples
        async for samples in decode_stream(file, RATE_HZ, DecodeLimits(max_sound_s=120)):
            num_samples += len(samples)

    with pytest.raises(MediaError) as raised:
        await read()
    assert raised.value.code == "too_long"
    assert 118 * RATE_HZ < num_samples <= 120 * RATE_HZ
