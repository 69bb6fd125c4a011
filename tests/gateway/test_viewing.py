"""Files on their way into a conversation, without a session around them."""

import hashlib

import numpy as np
import pytest
from conversation_rig import clip, conversation, item
from fakes import MODEL, NAMING_MODEL, SEEING_MODEL

from sensorium.core.api import ModelInfo, SequenceId, SpanClosed, SpanId
from sensorium.gateway.configuration import AudioFormat
from sensorium.gateway.context import Context
from sensorium.gateway.conversation import Unit
from sensorium.gateway.errors import PeerError
from sensorium.gateway.items import AudioPart, Item, Part, PicturePart, TextPart, VideoPart
from sensorium.gateway.media import FileDecoded, FileRefused, FileToDecode
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.placement import Placement
from sensorium.gateway.server_events import ErrorRaised, ItemDeleted, ItemDone, ServerEvent
from sensorium.gateway.spoken_turn import SpokenTurn
from sensorium.gateway.viewing import MAX_WAITING_BYTES, Viewing, modality_of

CAT, FILM = PicturePart(data=b"cat", detail="high"), VideoPart(data=b"film")
SOUND = AudioPart(data=b"sound")
PHONE = AudioFormat(encoding="pcmu", rate_hz=8_000)


class Rig:
    """A conversation with room for 500 bytes of media and items of 100 positions."""

    def __init__(self, model: ModelInfo = SEEING_MODEL) -> None:
        self.outbox = Outbox()
        self.conversation = conversation()
        self.context = Context(
            self.conversation,
            self.outbox,
            max_positions=1000,
            max_items=10,
            max_media_bytes=500,
            in_use=lambda: self.viewing.item_ids,
        )
        self.viewing = Viewing(self.outbox, self.conversation, self.context, model, 100)

    def begin(self, given: Item) -> list[FileToDecode]:
        self.viewing.check(given)
        self.conversation.insert(given, None)
        files_wanted = self.viewing.begin(given, f"event of {given.item_id}", PHONE)
        files = self.outbox.take_files()
        assert files_wanted == bool(files)
        return files

    def answer(self, file: FileToDecode, *, num_bytes: int = 10, num_positions: int = 5) -> bool:
        media = (clip(str(file.number), num_bytes=num_bytes, num_positions=num_positions),)
        return self.viewing.advance(FileDecoded(number=file.number, media=media))

    def said(self) -> list[ServerEvent]:
        return self.outbox.take_events()


def test_each_file_is_asked_for_by_a_number_of_its_own() -> None:
    rig = Rig()
    files = rig.begin(item("a", "text", CAT, FILM, SOUND)) + rig.begin(item("b", CAT))
    assert [(f.modality, f.data, f.detail) for f in files] == [
        ("image", b"cat", "high"),
        ("video", b"film", "auto"),
        ("audio", b"sound", "auto"),
        ("image", b"cat", "high"),
    ]
    assert len({file.number for file in files}) == 4
    assert {file.sound for file in files} == {PHONE}
    assert {file.max_bytes for file in files} == {500}
    assert rig.viewing.item_ids == {"a", "b"}


@pytest.mark.parametrize("part", [TextPart(text="hi"), AudioPart(transcript="hi"), AudioPart()])
def test_parts_without_bytes_wait_for_nothing(part: Part) -> None:
    rig = Rig()
    assert rig.begin(item("a", part)) == []
    assert not rig.viewing.is_busy


def test_sound_that_becomes_words_is_heard_elsewhere() -> None:
    rig = Rig(NAMING_MODEL)
    assert [file.modality for file in rig.begin(item("a", SOUND, CAT))] == ["image"]


def test_item_is_complete_with_its_last_file_in_any_order() -> None:
    rig = Rig()
    first, second = rig.begin(item("a", CAT, FILM))
    assert [rig.answer(second), rig.viewing.is_busy, rig.answer(first)] == [False, True, True]
    assert not rig.viewing.is_busy
    assert [type(event) for event in rig.said()] == [ItemDone]
    numbers = [each.content for each in rig.conversation.media_of("a")]
    assert numbers == [str(first.number), str(second.number)]


def test_refusal_names_the_event_and_the_part() -> None:
    rig = Rig()
    _, second = rig.begin(item("a", CAT, "text", FILM))
    rig.viewing.advance(FileRefused(number=second.number, code="damaged", message="It's cut off."))
    error, deleted = rig.said()
    assert isinstance(error, ErrorRaised)
    assert (error.code, error.message) == ("damaged", "It's cut off.")
    assert (error.param, error.event_id) == ("item.content[2]", "event of a")
    assert deleted == ItemDeleted(item_id="a")
    assert not rig.viewing.is_busy


@pytest.mark.parametrize("sizes", [{"num_bytes": 501}, {"num_positions": 95}])
def test_item_without_room_for_anything_else_is_refused(sizes: dict[str, int]) -> None:
    rig = Rig()
    [file] = rig.begin(item("a", CAT))
    assert not rig.answer(file, **sizes)
    error, deleted = rig.said()
    assert isinstance(error, ErrorRaised)
    assert (error.code, error.event_id, error.is_ours) == ("too_large", "event of a", False)
    assert deleted == ItemDeleted(item_id="a")
    assert rig.conversation.media_bytes == 0


def test_item_that_just_fits_is_taken() -> None:
    rig = Rig()
    [file] = rig.begin(item("a", CAT))
    frame = len("OuserN" + "CN")  # control tokens and line ends around a message
    assert rig.answer(file, num_bytes=500, num_positions=100 - frame)


def test_item_that_outgrows_the_budget_is_refused_before_its_last_file() -> None:
    rig = Rig()
    files = rig.begin(item("a", CAT, CAT, CAT))
    assert not rig.answer(files[0], num_bytes=300)
    assert not rig.said()
    assert not rig.answer(files[1], num_bytes=300)
    assert [type(event) for event in rig.said()] == [ErrorRaised, ItemDeleted]
    assert not rig.answer(files[2], num_bytes=300)
    assert not rig.said()
    assert rig.conversation.media_bytes == 0


def test_files_that_wait_are_counted_until_they_are_answered() -> None:
    rig = Rig()
    half = PicturePart(data=bytes(MAX_WAITING_BYTES // 2))
    [first] = rig.begin(item("a", half))
    rig.begin(item("b", half))
    assert not rig.viewing.wants_input
    with pytest.raises(PeerError, match="More than 32 MiB of files wait"):
        rig.viewing.check(item("c", PicturePart(data=b"x")))
    rig.viewing.check(item("c", "text"))
    rig.context.forget("a")  # the decoder is at work all the same
    assert not rig.viewing.wants_input
    rig.answer(first)
    rig.viewing.check(item("c", half))


@pytest.mark.parametrize(
    ("model", "part", "words"),
    [
        (MODEL, CAT, "no eyes; it takes text and audio"),
        (MODEL, FILM, "no eyes for videos; it takes text and audio"),
        (SEEING_MODEL, None, ""),
    ],
)
def test_senses_are_checked_beforehand(model: ModelInfo, part: Part | None, words: str) -> None:
    viewing = Rig(model).viewing
    if part is None:
        viewing.check(item("a", CAT, FILM, SOUND))
        return
    with pytest.raises(PeerError, match=words) as caught:
        viewing.check(item("a", "text", SOUND, part))
    assert (caught.value.code, caught.value.param) == (
        "unsupported_content",
        "item.content[2].type",
    )


def test_sound_of_a_turn_is_kept_by_its_name() -> None:
    rig = Rig()
    rig.conversation.insert(item("a", AudioPart()), None)
    samples = np.linspace(-1, 1, 100, dtype=np.float32)
    turn = SpokenTurn(item_id="a", keeps_sound=True)
    turn.append(samples[:30])
    turn.append(samples[30:])
    assert rig.viewing.keep_turn(turn) == ("item", "a")
    [kept] = rig.conversation.media_of("a")
    assert (kept.content, kept.gives_rows) == (hashlib.sha256(samples.tobytes()).hexdigest(), True)
    assert (kept.modality, kept.encoder) == ("audio", "fake-ears")
    assert [piece.data for piece in kept.pieces] == [samples.tobytes()]


def test_length_is_noted_from_whichever_sequence_tells_it() -> None:
    rig = Rig()
    ids = iter((SequenceId(1), SequenceId(2)))
    main, fork = (Placement(lambda: next(ids), rig.outbox.ask) for _ in range(2))
    cat = clip("cat")
    rig.conversation.insert(item("a", CAT), None)
    rig.conversation.keep("a", 0, (cat,))
    for placement in (main, fork):
        placement.sync([Unit(("item", "a"), (cat,))])

    def closed(sequence_id: int, num_positions: int, problem: str | None = None) -> None:
        event = SpanClosed(
            sequence_id=SequenceId(sequence_id),
            span_id=SpanId(1),
            num_positions=num_positions,
            transcript="",
            token_ids=(),
            language=None,
            problem=problem,
        )
        rig.viewing.encoded(event, [main, fork])

    closed(3, 50, "of somebody else's")
    assert (cat.num_positions, rig.said()) == (5, [])
    closed(2, 33)
    assert (cat.num_positions, rig.said()) == (33, [])
    closed(1, 44, "It is blank.")
    assert cat.num_positions == 44
    [error] = rig.said()
    assert isinstance(error, ErrorRaised)
    assert (error.code, error.message) == (
        "image_not_understood",
        "The image of item 'a': It is blank.",
    )


@pytest.mark.parametrize(
    ("part", "modality"),
    [
        (CAT, "image"),
        (FILM, "video"),
        (SOUND, "audio"),
        (AudioPart(transcript="hi"), None),
        (TextPart(text="hi"), None),
    ],
)
def test_modality_of_a_part(part: Part, modality: str | None) -> None:
    assert modality_of(part) == modality
