"""Clips of a conversation: their names, their pieces and how long they will be."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fakes import NAMING_MODEL, ROWS_MODEL, SEEING_MODEL
from muse_sound import tiny_encoder
from stub_engine import StubEngine
from vision_rig import noise, vision_sources

from sensorium.core.api import AppendMedia, CloseSpan, OpenSpan, SequenceId, SpanId
from sensorium.core.clips import ClipKey, Clips, Encoded
from sensorium.core.text.grammars import MediaMarks
from sensorium.encoders.base import ClipHints, Encoder
from sensorium.encoders.image import MuseImage
from sensorium.encoders.media import MediaFrame, Pts, picture
from sensorium.encoders.pool import EncoderPool
from sensorium.encoders.video import MuseVideo
from sensorium.gateway.media import MAX_PIECE_BYTES, Medium, content_of, estimate, medium

EARS = ROWS_MODEL.intakes["audio"]
EYES = SEEING_MODEL.intakes["image"]
FILM = SEEING_MODEL.intakes["video"]
SEQUENCE, SPAN = SequenceId(1), SpanId(1)


def sound(num_samples: int, pts: int = 0) -> MediaFrame:
    samples = np.random.default_rng(num_samples).uniform(-1, 1, num_samples)
    return MediaFrame(pts=Pts(pts), rate_hz=24_000, data=samples.astype(np.float32))


def joined(made: Medium) -> bytes:
    return b"".join(piece.data for piece in made.pieces)


# --- pieces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_samples", [1, 2**20, 2**20 + 1, 5_000_000])
def test_long_sound_goes_in_pieces_that_follow_each_other(num_samples: int) -> None:
    frame = sound(num_samples)
    made = medium("audio", [frame], EARS)
    assert len(made.pieces) == -(-4 * num_samples // MAX_PIECE_BYTES)
    position = 0
    for piece in made.pieces:
        assert piece.pts == position
        assert (4 * piece.shape[0], piece.dtype) == (len(piece.data), "float32")
        assert len(piece.data) <= MAX_PIECE_BYTES
        position += piece.shape[0]
    assert joined(made) == frame.data.tobytes()
    assert made.num_bytes == 4 * num_samples


def test_a_picture_is_one_piece_however_large() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1400, 1400, 3), np.uint8)
    [piece] = medium("image", [picture(pixels)], EYES).pieces
    assert len(piece.data) > MAX_PIECE_BYTES
    assert (piece.shape, piece.dtype) == ((1, 1400, 1400, 3), "uint8")
    np.testing.assert_array_equal(np.frombuffer(piece.data, np.uint8), pixels.ravel())


def test_pixels_that_lie_scattered_in_memory_are_sent_in_order() -> None:
    whole = np.arange(56 * 112 * 3, dtype=np.uint8).reshape(56, 112, 3)
    part = whole[:, ::-2]
    made = medium("image", [picture(part)], EYES)
    assert joined(made) == part.tobytes()
    assert made.content == medium("image", [picture(part.copy())], EYES).content


def test_clip_without_sound_has_no_pieces() -> None:
    made = medium("audio", [sound(0)], EARS)
    assert (made.pieces, made.num_bytes, made.num_positions) == ((), 0, 0)


def test_times_are_counted_from_the_clips_own_start() -> None:
    pixels = np.zeros((28, 28, 3), np.uint8)
    late = medium("video", [picture(pixels, 7.5), picture(pixels, 8.0)], FILM)
    assert [piece.pts for piece in late.pieces] == [0, 500_000]
    early = medium("video", [picture(pixels), picture(pixels, 0.5)], FILM)
    assert late.content == early.content


# --- names ----------------------------------------------------------------------------------------

PIXELS = np.zeros((28, 56, 3), np.uint8)
ONE_OFF = PIXELS.copy()
ONE_OFF[27, 55, 2] = 1


@pytest.mark.parametrize(
    "other",
    [
        [picture(ONE_OFF), picture(PIXELS, 1.0)],
        [picture(PIXELS), picture(PIXELS, 1.000001)],
        [picture(PIXELS.reshape(56, 28, 3)), picture(PIXELS, 1.0)],
        [picture(PIXELS)],
        [picture(PIXELS), picture(PIXELS, 1.0), picture(PIXELS, 2.0)],
        [picture(PIXELS), replace(picture(PIXELS, 1.0), rate_hz=1000)],
        [
            picture(PIXELS),
            MediaFrame(pts=Pts(1_000_000), rate_hz=10**6, data=PIXELS[None].view("i1")),
        ],
    ],
    ids=["pixel", "time", "shape", "fewer", "more", "rate", "type"],
)
def test_name_differs_with_all_that_an_encoder_sees(other: Sequence[MediaFrame]) -> None:
    clip = [picture(PIXELS), picture(PIXELS, 1.0)]
    assert content_of(clip) == content_of([picture(PIXELS.copy()), picture(PIXELS.copy(), 1.0)])
    assert content_of(clip) != content_of(other)


# --- lengths --------------------------------------------------------------------------------------

MARKS = MediaMarks(start=901, placeholder=902, end=903)
MARKS_OF_FILM = replace(MARKS, separator=904)


def num_positions(encoder: Encoder[Any], modality: str, made: Medium) -> int:
    """Return how many positions a clip really takes, a token a letter of a group's time."""
    engine = StubEngine()
    marks = {modality: MARKS_OF_FILM if modality == "video" else MARKS}
    answers: list[Encoded] = []
    pool = EncoderPool[ClipKey](
        {modality: encoder},
        on_output=lambda key, num_ticks, output, final: answers.append(
            Encoded(key=key, num_ticks=num_ticks, output=output, final=final)
        ),
    )
    clips = Clips(pool, {modality: encoder}, engine, lambda text: [1] * len(text), marks)
    hints = ClipHints(live=False)
    clips.open(OpenSpan(sequence_id=SEQUENCE, span_id=SPAN, modality=modality, hints=hints))
    for piece in made.pieces:
        clips.push(
            AppendMedia(
                sequence_id=SEQUENCE,
                span_id=SPAN,
                pts=piece.pts,
                shape=piece.shape,
                dtype=piece.dtype,
                data=piece.data,
            )
        )
    clips.close(CloseSpan(sequence_id=SEQUENCE, span_id=SPAN))
    while pool.run_once():
        pass
    for answer in answers:
        clips.hear(answer)
    assert engine.finished == [(SEQUENCE, SPAN)]
    return len(engine.slots.get((SEQUENCE, SPAN), []))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("num_samples", [1, 1919, 1920, 1921, 24_000])
def test_length_of_sound_is_known_exactly(num_samples: int) -> None:
    encoder = tiny_encoder()
    made = medium("audio", [sound(num_samples)], encoder.intake)
    assert made.num_positions == num_positions(encoder, "audio", made)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3), (3, 1)])
def test_length_of_a_picture_is_known_exactly(rows: int, columns: int) -> None:
    encoder = MuseImage.load(vision_sources())
    assert encoder is not None
    made = medium("image", [picture(noise(rows, columns, seed=0))], encoder.intake)
    assert made.num_positions == num_positions(encoder, "image", made)


@pytest.mark.parametrize("num_frames", [1, 2, 3, 6])
def test_length_of_a_video_is_known_but_for_its_times(num_frames: int) -> None:
    encoder = MuseVideo.load(vision_sources())
    assert encoder is not None
    frames = [picture(noise(2, 2, seed=index), index / 2) for index in range(num_frames)]
    made = medium("video", frames, encoder.intake)
    num_groups = -(-num_frames // 2)
    # the time of a group and what divides it from the one before
    assert abs(made.num_positions - num_positions(encoder, "video", made)) <= 4 * num_groups


def test_length_of_words_is_a_guess() -> None:
    intake = NAMING_MODEL.intakes["image"]
    assert estimate([picture(noise(1, 1, seed=0))], intake) == 96


def test_clip_says_what_becomes_of_it() -> None:
    frames = [picture(noise(1, 1, seed=0))]
    for model, gives_rows in ((SEEING_MODEL, True), (NAMING_MODEL, False)):
        made = medium("image", frames, model.intakes["image"])
        assert made.encoder == model.intakes["image"].encoder
        assert (made.modality, made.gives_rows) == ("image", gives_rows)
