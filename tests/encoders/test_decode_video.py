"""Videos, good and bad, through a decoder of their own."""

import io
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import av
import numpy as np
import pytest
from av.stream import Disposition
from media_files import (
    MILLISECONDS,
    VIDEO,
    grey_frames,
    noise,
    picture_file,
    sound_file,
    tone,
    video_file,
    wav,
)
from PIL import Image

from sensorium.encoders import frame_choice
from sensorium.encoders.decode import DecodeLimits, decode_video
from sensorium.encoders.decode_picture import _UPRIGHT
from sensorium.encoders.media import Intake, MediaError, MediaFrame, Pixels

RATE_HZ = 16_000
LEVELS = [20, 60, 100, 140, 180, 220]
EXACT = {"qp": "0", "g": "4", "bf": "2"}
"""x264 without loss, a key frame every four, with frames out of order."""


async def read(
    file: bytes,
    intake: Intake = VIDEO,
    *,
    sound_rate_hz: int | None = None,
    limits: DecodeLimits | None = None,
) -> list[tuple[str, MediaFrame]]:
    stream = decode_video(file, intake, sound_rate_hz=sound_rate_hz, limits=limits)
    async with aclosing(stream) as frames:
        return [frame async for frame in frames]


async def refused(file: bytes, limits: DecodeLimits | None = None) -> MediaError:
    with pytest.raises(MediaError) as raised:
        await read(file, limits=limits)
    assert str(raised.value).endswith(".")
    return raised.value


def times_ms(frames: list[tuple[str, MediaFrame]]) -> list[int]:
    return [frame.pts // 1000 for modality, frame in frames if modality == "video"]


def levels(frames: list[tuple[str, MediaFrame]]) -> list[int]:
    return [int(frame.data.mean()) for modality, frame in frames if modality == "video"]


def heard(frames: list[tuple[str, MediaFrame]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    sound = [frame for modality, frame in frames if modality == "audio"]
    ends = [frame.pts + len(frame.data) for frame in sound]
    assert [frame.pts for frame in sound] == [0, *ends[:-1]]
    return np.concatenate([frame.data for frame in sound])


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("mp4", "libx264"),
        ("mp4", "mpeg4"),
        ("mov", "mjpeg"),
        ("webm", "libvpx"),
        ("webm", "libvpx-vp9"),
        ("matroska", "libx264"),
        ("matroska", "ffv1"),
    ],
)
async def test_formats(container: str, codec: str) -> None:
    pixel_format = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    file = video_file(container, codec, grey_frames(LEVELS), pixel_format=pixel_format)
    frames = await read(file)
    assert times_ms(frames) == [0, 100, 200, 300, 400, 500]
    assert np.abs(np.array(levels(frames)) - LEVELS).max() <= 6
    for modality, frame in frames:
        assert (modality, frame.data.shape, frame.rate_hz) == ("video", (1, 64, 64, 3), 1_000_000)


async def test_times_are_the_files_own_at_any_rate() -> None:
    times = [0, 333, 500, 1001, 1300, 1700]
    file = video_file("webm", "libvpx", grey_frames(LEVELS), times)
    frames = await read(file)
    assert times_ms(frames) == times
    assert np.abs(np.array(levels(frames)) - LEVELS).max() <= 6


async def test_frames_are_chosen_by_their_times_wherever_decoding_begins() -> None:
    shown = range(16, 236, 10)
    times = [index * 40 + (index % 3) * 5 for index in range(len(shown))]
    file = video_file("mp4", "libx264", grey_frames(shown), times, options=EXACT)
    times_s = [time / 1000 for time in times]
    for max_frames in (1, 2, 3, 5, 8, 100):
        intake = replace(VIDEO, max_frames=max_frames)
        wanted = frame_choice.choose(times_s, fps=1000, max_frames=max_frames, frames_per_group=1)
        frames = await read(file, intake)
        assert times_ms(frames) == [times[index] for index in wanted]
        expected = [shown[index] for index in wanted]
        assert np.abs(np.array(levels(frames)) - expected).max() <= 2


async def test_frames_before_their_key_frame_get_what_they_refer_to() -> None:
    """In an open group of pictures some are shown before the frame that decoding can begin at."""
    options = {
        "x264-params": "open-gop=1:keyint=5:min-keyint=1:scenecut=0:bframes=2:b-adapt=0:qp=20"
    }
    shown = [np.roll(noise(64, 64), index, axis=1) for index in range(30)]
    file = video_file("matroska", "libx264", shown, options=options)
    everything = {frame.pts: frame.data for _, frame in await read(file)}
    assert len(everything) == 30
    times_s = [index / 10 for index in range(30)]
    for max_frames in range(2, 12):
        wanted = frame_choice.choose(times_s, fps=1000, max_frames=max_frames, frames_per_group=1)
        frames = await read(file, replace(VIDEO, max_frames=max_frames))
        assert times_ms(frames) == [100 * index for index in wanted]
        for _, frame in frames:
            assert np.array_equal(frame.data, everything[frame.pts])


async def test_bytes_of_all_frames_are_bounded_by_taking_fewer() -> None:
    file = video_file("mp4", "libx264", grey_frames(LEVELS), options=EXACT)
    room = 3 * 64 * 64
    frames = await read(file, limits=DecodeLimits(max_video_bytes=3 * room + 5))
    assert times_ms(frames)[::2] == [0, 500]
    assert len(frames) == 3
    assert "12287 bytes" in str(await refused(file, DecodeLimits(max_video_bytes=room - 1)))


async def test_frames_are_sized_to_cells() -> None:
    source = Image.fromarray(noise(12, 16)).resize((160, 120), Image.Resampling.BICUBIC)
    file = video_file("matroska", "libx264rgb", [np.asarray(source)], **RGB)
    (frame,) = await read(file, replace(VIDEO, cell_px=28, max_cells=16))
    assert frame[1].data.shape == (1, 84, 112, 3)
    wanted = np.asarray(source.resize((112, 84), Image.Resampling.LANCZOS))
    assert np.array_equal(frame[1].data[0], wanted)


RGB: dict[str, Any] = {"options": {"qp": "0"}, "pixel_format": "rgb24"}


def turned(file: bytes, matrix: tuple[int, int, int, int]) -> bytes:
    """Return an mp4 with (a, b, c, d) as the matrix of its track."""
    a, b, c, d = (value << 16 for value in matrix)
    values = (a, b, 0, c, d, 0, 0, 0, 1 << 30)
    place = file.index(b"tkhd") + 44
    packed = b"".join(value.to_bytes(4, "big", signed=True) for value in values)
    return file[:place] + packed + file[place + 36 :]


@pytest.mark.parametrize(
    ("orientation", "matrix"),
    [
        (1, (1, 0, 0, 1)),
        (2, (-1, 0, 0, 1)),
        (3, (-1, 0, 0, -1)),
        (4, (1, 0, 0, -1)),
        (5, (0, 1, 1, 0)),
        (6, (0, 1, -1, 0)),
        (7, (0, -1, -1, 0)),
        (8, (0, -1, 1, 0)),
    ],
)
async def test_frames_are_upright(orientation: int, matrix: tuple[int, int, int, int]) -> None:
    stored = noise(32, 64)
    file = turned(video_file("mp4", "libx264rgb", [stored], **RGB), matrix)
    (frame,) = await read(file)
    image = Image.fromarray(stored)
    upright = image.transpose(_UPRIGHT[orientation]) if orientation > 1 else image
    assert np.array_equal(frame[1].data[0], np.asarray(upright))


async def test_sound_and_pictures_share_a_clock() -> None:
    sound = np.zeros(48_000 * 2, np.float32)
    sound[48_000:52_800] = tone(48_000)[:4_800]
    shown = grey_frames([16] * 10 + [235] + [16] * 9)
    for container, codec, sound_codec in (
        ("webm", "libvpx", "libopus"),
        ("mp4", "libx264", "aac"),
        ("matroska", "libx264", "pcm_s16le"),
    ):
        file = video_file(container, codec, shown, sound=sound, sound_codec=sound_codec)
        frames = await read(file, sound_rate_hz=RATE_HZ)
        samples = heard(frames)
        assert abs(len(samples) / RATE_HZ - 2) < 0.05
        assert abs(np.argmax(np.abs(samples) > 0.1) / RATE_HZ - 1) < 0.01
        assert times_ms(frames)[np.argmax(levels(frames))] == 1000
        starts = [frame.start_s for _, frame in frames]
        assert starts == sorted(starts)


def film(parts: list[tuple[float, float]], frame_s: list[float], start_s: float = 0.0) -> bytes:
    """Return a film with loud sound from and to these times."""
    file = io.BytesIO()
    output: Any = av.open(file, "w", format="matroska")
    with output:
        video = output.add_stream("libx264", rate=10)
        video.width = video.height = 64
        video.pix_fmt = "yuv420p"
        video.codec_context.time_base = MILLISECONDS
        audio = output.add_stream("pcm_s16le", rate=RATE_HZ, layout="mono")
        for time_s in frame_s:
            frame = av.VideoFrame(64, 64, "yuv420p")
            frame.pts, frame.time_base = round((start_s + time_s) * 1000), MILLISECONDS
            output.mux(video.encode(frame))
        output.mux(video.encode(None))
        for begin_s, end_s in parts:
            ones = np.full((1, round((end_s - begin_s) * RATE_HZ)), 16384, np.int16)
            loud = av.AudioFrame.from_ndarray(ones, format="s16", layout="mono")
            loud.sample_rate, loud.pts = RATE_HZ, round((start_s + begin_s) * RATE_HZ)
            output.mux(audio.encode(loud))
        output.mux(audio.encode(None))
    return file.getvalue()


@pytest.mark.parametrize("start_s", [0.0, 5.0])
async def test_gaps_of_sound_are_silent_and_times_begin_with_the_file(start_s: float) -> None:
    file = film([(0.5, 0.7), (2.0, 2.1), (2.05, 2.2)], [0.0, 1.0, 3.0], start_s)
    frames = await read(file, sound_rate_hz=RATE_HZ)
    assert times_ms(frames) == [0, 1000, 3000]
    samples = heard(frames)
    loud = np.zeros(round(2.2 * RATE_HZ), bool)
    loud[8000:11200] = loud[32000:] = True
    assert len(samples) == len(loud)
    assert np.array_equal(samples > 0.4, loud)


async def test_sound_that_begins_the_file_sets_its_start() -> None:
    file = film([(0.0, 0.2)], [1.0])
    assert times_ms(await read(file, sound_rate_hz=RATE_HZ)) == [1000]


async def test_gap_of_hours_is_counted_before_it_is_filled() -> None:
    file = film([(0.0, 0.1), (90_000.0, 90_000.1)], [0.0])
    stream = decode_video(file, VIDEO, sound_rate_hz=RATE_HZ, limits=DecodeLimits(max_sound_s=60))
    with pytest.raises(MediaError, match="more than 1 minutes of sound"):
        async with aclosing(stream) as frames:
            [frame async for frame in frames]


async def test_of_several_streams_the_default_one_is_shown() -> None:
    file = io.BytesIO()
    output: Any = av.open(file, "w", format="matroska")
    with output:
        streams = [output.add_stream("libx264", rate=10) for _ in range(3)]
        for stream in streams:
            stream.width = stream.height = 64
            stream.pix_fmt, stream.disposition = "yuv420p", 0
        streams[1].disposition = Disposition.default
        for number, stream in enumerate(streams):
            plain = np.full((64, 64, 3), 50 + 50 * number, np.uint8)
            frame = av.VideoFrame.from_ndarray(plain, format="rgb24")
            frame.pts = 0
            output.mux([*stream.encode(frame), *stream.encode(None)])
    assert abs(levels(await read(file.getvalue()))[0] - 100) < 4


def many_streams(count: int) -> bytes:
    """Return an mp4 with its one track listed again and again."""
    file = sound_file("mp4", "aac")
    moov, trak = file.index(b"moov") - 4, file.index(b"trak") - 4
    end = trak + int.from_bytes(file[trak : trak + 4], "big")
    index = file[moov + 4 : trak] + file[trak:end] * count + file[end:]
    return file[:moov] + (len(index) + 4).to_bytes(4, "big") + index


def fuzzed_h264() -> bytes:
    """Return an mp4 whose coded frames are noise."""
    file = video_file("mp4", "libx264", [noise(64, 64, seed=seed) for seed in range(9)])
    start, end = file.index(b"mdat") + 4, file.index(b"moov") - 4
    assert start < end
    return file[:start] + noise(1, end - start, 1).tobytes() + file[end:]


GREY: Callable[[], list[Pixels]] = lambda: grey_frames(LEVELS)  # noqa: E731 - as short as it is


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: b"", "empty_file"),
        (lambda: noise(50, 50).tobytes(), "unsupported_format"),
        (lambda: wav(bytes(320)), "no_video"),
        (lambda: sound_file("mp4", "aac"), "no_video"),
        (lambda: picture_file(Image.fromarray(noise(8, 8)), "PNG"), "unsupported_format"),
        (lambda: video_file("mp4", "libx264", GREY())[:-900], "truncated"),
        (lambda: fuzzed_h264(), "damaged"),
        (lambda: many_streams(70), "too_large"),
        (lambda: many_streams(2000), "too_large"),
        (lambda: video_file("webm", "libvpx", GREY(), [0, 1, 2, 3, 4, 1 << 40]), "too_long"),
        (lambda: video_file("avi", "mpeg4", GREY()), "unsupported_format"),
    ],
    ids=[
        "empty",
        "noise",
        "wav",
        "m4a",
        "picture",
        "no-moov",
        "fuzzed",
        "70-streams",
        "2000-streams",
        "34-years",
        "avi",
    ],
)
async def test_what_is_no_video_says_so(make: Callable[[], bytes], code: str) -> None:
    assert (await refused(make())).code == code


async def test_limits_are_named() -> None:
    file = video_file("mp4", "libx264", GREY())
    error = await refused(file, DecodeLimits(max_video_pixels=4000))
    assert error.code == "too_large"
    assert "64 x 64 pixels" in str(error)
    assert "0.004 million" in str(error)
    assert "more than 0.005 minutes" in str(await refused(file, DecodeLimits(max_video_s=0.3)))
    error = await refused(many_streams(5), DecodeLimits(max_streams=4))
    assert "4 streams" in str(error)


async def test_cut_off_film_gives_what_is_there() -> None:
    frames = [noise(64, 64, seed=seed) for seed in range(10)]
    file = video_file("webm", "libvpx", frames)
    found = times_ms(await read(file[: len(file) // 2]))
    assert found == list(range(0, 100 * len(found), 100))
    assert 3 <= len(found) <= 7


async def test_damaged_frames_are_stood_in_for() -> None:
    file = bytearray(video_file("webm", "libvpx", [noise(64, 64, seed=n) for n in range(10)]))
    middle = len(file) // 2
    file[middle : middle + 300] = bytes(300)
    assert 3 <= len(times_ms(await read(bytes(file)))) <= 10


async def test_one_frame_is_a_video_of_one() -> None:
    frames = await read(video_file("webm", "libvpx", grey_frames([99])))
    assert times_ms(frames) == [0]
