"""Files of items through the real decoders: what becomes of them, and who is told."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from fakes import NAMING_MODEL, SEEING_MODEL
from media_files import grey_frames, noise, picture_file, tone, video_file
from PIL import Image

from sensorium.encoders.media import Intake
from sensorium.gateway.configuration import AudioFormat
from sensorium.gateway.decoding import FileDecoding, decode_file
from sensorium.gateway.media import Detail, FileDecoded, FileRefused, FileToDecode, Medium, Modality

INTAKES = SEEING_MODEL.intakes
MIB = 1 << 20
PHONE = AudioFormat(encoding="pcmu", rate_hz=8_000)
PNG = picture_file(Image.fromarray(noise(60, 90)), "png")
FRAMES = grey_frames(range(0, 250, 12), 56, 84)  # 21 of them, ten a second


def file(
    modality: Modality,
    data: bytes,
    *,
    detail: Detail = "auto",
    sound: AudioFormat | None = None,
    max_bytes: int = 48 * MIB,
) -> FileToDecode:
    return FileToDecode(
        number=7,
        modality=modality,
        data=data,
        max_bytes=max_bytes,
        detail=detail,
        sound=sound or AudioFormat(),
    )


async def media(wanted: FileToDecode, intakes: Mapping[str, Intake] = INTAKES) -> list[Medium]:
    answer = await decode_file(wanted, intakes)
    assert isinstance(answer, FileDecoded), answer
    assert answer.number == 7
    return list(answer.media)


async def refusal(wanted: FileToDecode) -> FileRefused:
    answer = await decode_file(wanted, INTAKES)
    assert isinstance(answer, FileRefused)
    assert answer.number == 7
    return answer


async def test_picture_is_sized_to_the_encoders_cells() -> None:
    [made] = await media(file("image", PNG))
    assert (made.modality, made.encoder, made.gives_rows) == ("image", "fake-eyes", True)
    assert [piece.shape for piece in made.pieces] == [(1, 56, 84, 3)]
    assert made.num_positions == 2 * 3 + 2
    [again] = await media(file("image", PNG))
    assert again.content == made.content


@pytest.mark.parametrize(
    ("intakes", "num_cells"),
    [(INTAKES, 16), ({"image": INTAKES["image"]}, 64), ({"video": INTAKES["video"]}, 16)],
)
async def test_frame_of_a_camera_is_sized_like_a_videos_where_there_are_some(
    intakes: Mapping[str, Intake], num_cells: int
) -> None:
    large = picture_file(Image.new("RGB", (900, 900), "red"), "jpeg")
    [made] = await media(replace(file("image", large), is_frame=True), intakes)
    [piece] = made.pieces
    assert piece.shape[1] * piece.shape[2] == num_cells * 28 * 28


async def test_frame_of_a_camera_may_have_fewer_pixels_than_a_picture() -> None:
    large = picture_file(Image.new("RGB", (4097, 2304), "red"), "png")
    await media(file("image", large))
    assert (await refusal(replace(file("image", large), is_frame=True))).code == "too_large"


@pytest.mark.parametrize(("detail", "num_cells"), [("low", 256), ("high", 400), ("auto", 400)])
async def test_detail_says_how_finely_a_picture_is_seen(detail: Detail, num_cells: int) -> None:
    large = picture_file(Image.new("RGB", (2000, 2000), "red"), "png")
    eyes = Intake(
        encoder="eyes",
        rate_hz=10**6,
        dtype="uint8",
        shape=(-1, -1, 3),
        gives_rows=True,
        cell_px=28,
        max_cells=400,
    )
    [made] = await media(file("image", large, detail=detail), {"image": eyes})
    assert made.num_positions == num_cells + 2


async def test_video_is_its_frames_and_its_sound() -> None:
    data = video_file("mp4", "libx264", FRAMES, sound=tone(48_000, 2.0), sound_codec="aac")
    film, sound = await media(file("video", data))
    assert (film.modality, film.encoder) == ("video", "fake-film-eyes")
    assert {piece.shape for piece in film.pieces} == {(1, 56, 84, 3)}
    assert len(film.pieces) == 4  # two a second
    assert [piece.pts for piece in film.pieces] == sorted(piece.pts for piece in film.pieces)
    levels = [np.frombuffer(piece.data, np.uint8).mean() for piece in film.pieces]
    assert levels[0] < 20
    assert levels[-1] > 220
    assert (sound.modality, sound.encoder) == ("audio", "fake-ears")
    num_samples = sum(piece.shape[0] for piece in sound.pieces)
    assert abs(num_samples - 2.0 * 24_000) < 2 * 1024 * 24_000 / 48_000  # a frame of the codec's
    samples = np.concatenate([np.frombuffer(p.data, np.float32) for p in sound.pieces])
    assert 0.2 < np.abs(samples[12_000:36_000]).mean() < 0.4  # a sine of 0.5


async def test_sound_of_a_video_is_left_out_where_nobody_hears() -> None:
    data = video_file("webm", "libvpx", FRAMES, sound=tone(48_000, 2.0))
    [film] = await media(file("video", data), {"video": INTAKES["video"]})
    assert film.modality == "video"


async def test_silent_video_has_no_sound() -> None:
    [film] = await media(file("video", video_file("webm", "libvpx", FRAMES)))
    assert film.modality == "video"


async def test_words_are_made_of_the_same_frames() -> None:
    [made] = await media(file("image", PNG), NAMING_MODEL.intakes)
    assert (made.encoder, made.gives_rows) == ("fake-labels", False)


@pytest.mark.parametrize(
    ("data", "sound", "num_samples"),
    [
        (np.full(24_000, 8192, "<i2").tobytes(), AudioFormat(), 24_000),
        (bytes([0x80]) * 8_000, PHONE, 24_000),
        (np.full(24_000, 8192, "<i2").tobytes() + b"\0", AudioFormat(), 24_000),
    ],
)
async def test_bare_sound_is_read_in_its_format(
    data: bytes, sound: AudioFormat, num_samples: int
) -> None:
    [made] = await media(file("audio", data, sound=sound))
    assert (made.modality, made.encoder) == ("audio", "fake-ears")
    [piece] = made.pieces
    assert piece.shape == (num_samples,)
    level = 0.25 if sound.encoding == "pcm16" else 32124 / 32768
    samples = np.frombuffer(piece.data, np.float32)
    np.testing.assert_allclose(samples[2_000:22_000], level, atol=0.01)


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        (file("image", b"what is this?"), "unsupported_format", "jpeg"),
        (file("image", PNG[:100]), "truncated", "90 x 60"),
        (file("video", PNG), "unsupported_format", "mp4"),
        (file("audio", b"\0"), "no_sound", "not even one sample"),
        (file("audio", bytes(MIB), sound=PHONE, max_bytes=11 * MIB), "too_large", "than 11 MiB"),
    ],
)
async def test_what_is_no_such_file_is_refused_in_the_decoders_words(
    wanted: FileToDecode, code: str, words: str
) -> None:
    refused = await refusal(wanted)
    assert refused.code == code
    assert words in refused.message


async def test_video_is_given_up_as_soon_as_it_outgrows_the_conversation() -> None:
    data = video_file("mp4", "libx264", FRAMES, sound=tone(48_000, 60.0), sound_codec="aac")
    refused = await refusal(file("video", data, max_bytes=MIB))
    assert refused.code == "too_large"
    assert "more than 1 MiB when they are decoded" in refused.message


async def answers_of(*files: FileToDecode) -> tuple[list[int], list[Exception]]:
    numbers: list[int] = []
    failures: list[Exception] = []
    decoding = FileDecoding(INTAKES, lambda answer: numbers.append(answer.number), failures.append)
    async with asyncio.TaskGroup() as group:
        decoding.group = group
        for each in files:
            decoding.start(each)
    return numbers, failures


async def test_every_file_is_answered() -> None:
    numbers, failures = await answers_of(*[file("image", PNG)] * 3, file("image", b"what?"))
    assert (numbers, failures) == ([7] * 4, [])


async def test_fault_of_ours_is_told_and_ends_nobody_elses_task() -> None:
    numbers, failures = await answers_of(
        FileToDecode(number=1, modality="image", data=PNG, max_bytes=MIB, detail="fine"),  # type: ignore[arg-type]  # a fault
        file("image", PNG),
    )
    assert numbers == [7]
    assert [type(failure) for failure in failures] == [ValueError]


async def test_files_that_are_given_up_answer_nobody() -> None:
    answers: list[FileDecoded | FileRefused] = []
    decoding = FileDecoding(INTAKES, answers.append, lambda error: None)
    async with asyncio.TaskGroup() as group:
        decoding.group = group
        for _ in range(20):
            decoding.start(file("image", PNG))
        await asyncio.sleep(0)
        decoding.cancel()
    assert answers == []
