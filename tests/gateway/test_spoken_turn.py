"""A spoken turn keeps its sound where it becomes rows, and what was seen between its stretches."""

import hashlib
from dataclasses import replace

import numpy as np
from fakes import ROWS_MODEL
from hypothesis import given
from hypothesis import strategies as st

from sensorium.core.api import Heard, SpanClosed, SpanId
from sensorium.core.api import SequenceId as Id
from sensorium.encoders.media import Samples
from sensorium.gateway.items import AudioPart, PicturePart, VideoPart
from sensorium.gateway.media import Medium
from sensorium.gateway.spoken_turn import SpokenTurn

INTAKE = ROWS_MODEL.intakes["audio"]
SOUND = np.random.default_rng(0).standard_normal(1_000).astype(np.float32)
PICTURE = Medium(
    modality="image", encoder="eyes", pieces=(), content="p", gives_rows=True, num_positions=8
)
FILM = replace(PICTURE, modality="video")


def heard(span: int, text: str, pending: str) -> Heard:
    return Heard(
        sequence_id=Id(1), span_id=SpanId(span), text=text, pending=pending, words=(), token_ids=()
    )


def closed(span: int, transcript: str, problem: str | None = None) -> SpanClosed:
    return SpanClosed(
        sequence_id=Id(1), span_id=SpanId(span), num_positions=3, transcript=transcript,
        token_ids=(), language=None, problem=problem,
    )  # fmt: skip


def sound_of(turn: SpokenTurn) -> list[Samples]:
    return [np.concatenate(stretch.chunks) for stretch in turn.stretches]


@given(cuts=st.lists(st.integers(0, 1_000), max_size=8))
def test_clip_is_all_sound_of_a_stretch_under_the_hash_of_its_bytes(cuts: list[int]) -> None:
    turn = SpokenTurn(item_id="a", keeps_sound=True)
    for piece in np.split(SOUND, sorted(cuts)):
        turn.append(piece)
    [[clip]] = turn.media(INTAKE).values()
    assert b"".join(piece.data for piece in clip.pieces) == SOUND.tobytes()
    assert clip.content == turn.stretches[0].content == hashlib.sha256(SOUND.tobytes()).hexdigest()


def test_turn_that_starts_over_keeps_what_it_is_made_of() -> None:
    turn = SpokenTurn(item_id="a", keeps_sound=True)
    turn.append(SOUND[:600])
    turn.start_over()
    turn.append(SOUND[600:])
    assert turn.stretches[0].content == hashlib.sha256(SOUND.tobytes()).hexdigest()


def test_sound_that_becomes_words_has_no_name_and_is_not_kept() -> None:
    turn = SpokenTurn(item_id="a")
    turn.append(SOUND)
    assert turn.stretches[0].content == ""
    assert turn.media(INTAKE) == {}


def test_stretches_are_clips_of_their_own_around_what_was_seen() -> None:
    turn = SpokenTurn(item_id="a", keeps_sound=True)
    turn.append(SOUND[:600])
    turn.leave_place(before=7)
    turn.append(SOUND[600:])
    assert turn.parts() == (AudioPart(), AudioPart())
    turn.settle((PICTURE, FILM))
    assert turn.parts() == (AudioPart(), PicturePart(), VideoPart(), AudioPart())
    kept = turn.media(INTAKE)
    names = [hashlib.sha256(part.tobytes()).hexdigest() for part in np.split(SOUND, [600])]
    assert [kept[place][0].content for place in range(4)] == [names[0], "p", "p", names[1]]
    assert turn.seen() == [PICTURE, FILM]


def test_where_there_is_nothing_to_see_the_sound_goes_on() -> None:
    turn = SpokenTurn(item_id="a", keeps_sound=True)
    for before, piece in enumerate(np.split(SOUND, [300, 600])):
        turn.leave_place(before)
        turn.append(piece)
    for _ in range(3):
        turn.settle(())
    turn.leave_place(before=9)
    turn.settle(())
    [whole] = sound_of(turn)
    np.testing.assert_array_equal(whole, SOUND)
    assert turn.stretches[0].content == hashlib.sha256(SOUND.tobytes()).hexdigest()


def test_words_of_stretches_are_told_in_their_order() -> None:
    turn = SpokenTurn(item_id="a")
    for piece in np.split(SOUND, 2):
        turn.append(piece)
        turn.leave_place(before=1)
        turn.settle((PICTURE,))
    first, second = turn.stretches
    turn.open_spans.update({SpanId(1): first, SpanId(3): second})
    turn.hear(heard(1, "hello", " th"))
    turn.hear(heard(3, "you", " are"))
    assert (turn.settled, turn.pending) == ("hello", " th")
    turn.hear(closed(1, "hello there", "hard to hear"))
    assert (turn.settled, turn.pending) == ("hello there you", " are")
    turn.hear(closed(3, "you are"))
    assert (turn.settled, turn.pending) == ("hello there you are", "")
    assert turn.parts()[::2] == (
        AudioPart(transcript="hello there"),
        AudioPart(transcript="you are"),
    )
    assert (turn.num_positions, turn.problem) == (6, "hard to hear")


def test_pending_words_of_a_later_stretch_begin_with_a_space() -> None:
    turn = SpokenTurn(item_id="a")
    for piece in np.split(SOUND, 2):
        turn.append(piece)
        turn.leave_place(before=1)
        turn.settle((PICTURE,))
    first, second = turn.stretches
    turn.open_spans.update({SpanId(1): first, SpanId(3): second})
    turn.hear(closed(1, "hello"))
    turn.hear(heard(3, "", "you"))
    assert (turn.settled, turn.pending) == ("hello", " you")
