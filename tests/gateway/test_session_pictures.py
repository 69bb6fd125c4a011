"""Pictures, videos and inline sound in a session: each in its place, encoded as soon as it can."""

from dataclasses import replace

import numpy as np
import pytest
from fakes import MODEL, NAMING_MODEL, ROWS_MODEL, SEEING_MODEL
from session_rig import Rig

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    CloseSpan,
    Generate,
    ModelInfo,
    OpenSequence,
    OpenSpan,
    Rollback,
    SequenceId,
    SpanClosed,
)
from sensorium.gateway.client_events import (
    AppendAudio,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    UpdateSession,
)
from sensorium.gateway.items import (
    AudioPart,
    Item,
    ItemReference,
    Part,
    PicturePart,
    TextPart,
    VideoPart,
)
from sensorium.gateway.server_events import (
    AudioCommitted,
    ErrorRaised,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ResponseCreated,
    ResponseDone,
)
from sensorium.gateway.settings import SessionSettings

CAT, DOG = PicturePart(data=b"c2x3"), PicturePart(data=b"d1x4")
FILM = VideoPart(data=b"f1x2")
HALF_SECOND = np.full(12_000, 8000, "<i2").tobytes()
SOUND = AudioPart(data=HALF_SECOND)
MANUAL = UpdateSession(changes={"turn_detection": None})
OPEN, CLOSE = "<|im_start|>user\n", "<|im_end|>\n"
SYSTEM = "<|im_start|>system\nS<|im_end|>\n"
ANSWER = "<|im_start|>assistant\n"


def rig(
    model: ModelInfo = SEEING_MODEL, *, decoding: bool = True, auto: bool = True, **limits: int
) -> Rig:
    made = Rig(model=model, auto=auto, settings=SessionSettings(default_instructions="S", **limits))
    made.decoding = decoding
    return made


def item(*content: Part | str, item_id: str = "", event_id: str | None = None) -> CreateItem:
    parts = tuple(TextPart(text=part) if isinstance(part, str) else part for part in content)
    return CreateItem(item=Item(item_id=item_id, role="user", content=parts), event_id=event_id)


def standing(made: Rig, sequence_id: int | None = None) -> str:
    """Return what stands in a sequence, by default the newest: its text, and media as [c], by the
    first byte of a picture, or [sound]."""
    opened = [r.sequence_id for r in made.asked if isinstance(r, OpenSequence)]
    wanted = opened[-1] if sequence_id is None else SequenceId(sequence_id)
    spans: dict[int, str] = {}
    for request in made.asked:
        if request.sequence_id != wanted:
            continue
        match request:
            case AppendTokens(span_id=span, token_ids=ids):
                spans[span] = made.prompt.tokenizer.spell(ids)
            case OpenSpan(span_id=span, modality=modality):
                spans[span] = "[sound]" if modality == "audio" else "[]"
            case AppendMedia(span_id=span, dtype="uint8", data=data) if spans[span] == "[]":
                spans[span] = f"[{chr(data[0])}]"
            case Rollback(keep_through=keep):
                spans = {s: text for s, text in spans.items() if keep is not None and s <= keep}
            case _:
                pass
    return "".join(spans.values())


def message(text: str) -> str:
    return f"{OPEN}{text}{CLOSE}"


def opened(made: Rig, modality: str) -> list[OpenSpan]:
    return [r for r in made.asked if isinstance(r, OpenSpan) and r.modality == modality]


# --- an item on its way in ------------------------------------------------------------------------


def test_item_keeps_its_place_among_those_created_afterwards() -> None:
    made = rig(decoding=False)
    made.send(item(CAT, item_id="a"), item("later", item_id="b"))
    assert [(e.item.item_id, e.previous_item_id) for e in made.of(ItemAdded)] == [
        ("a", None),
        ("b", "a"),
    ]
    assert [e.item.item_id for e in made.of(ItemDone)] == ["b"]
    said = made.decode(made.files[0])
    assert [(e.item.item_id, e.previous_item_id) for e in said if isinstance(e, ItemDone)] == [
        ("a", None)
    ]
    made.send(CreateResponse())
    assert standing(made) == SYSTEM + message("[c]") + message("later") + ANSWER + CLOSE


def test_events_show_a_picture_without_its_bytes() -> None:
    made = rig()
    made.send(item(PicturePart(data=b"c2x3", detail="low"), SOUND, FILM))
    shown = (PicturePart(detail="low"), AudioPart(), VideoPart())
    assert [e.item.content for e in made.of(ItemAdded)] == [shown]
    assert [e.item.content for e in made.of(ItemDone)] == [shown]


def test_decoders_are_told_how_finely_a_picture_is_to_be_seen() -> None:
    made = rig(decoding=False)
    made.send(item(PicturePart(data=b"c2x3", detail="low"), FILM))
    assert [(f.modality, f.detail, f.max_bytes) for f in made.files] == [
        ("image", "low", 48 << 20),
        ("video", "auto", 48 << 20),
    ]


def test_item_is_done_with_its_last_part() -> None:
    made = rig(decoding=False)
    made.send(item(CAT, DOG))
    made.decode(made.files[1])
    assert not made.of(ItemDone)
    assert not opened(made, "image")
    made.decode(made.files[0])
    assert len(made.of(ItemDone)) == 1
    assert standing(made) == SYSTEM + message("[c][d]")


def test_response_waits_for_the_picture_and_sees_it() -> None:
    made = rig(decoding=False)
    made.send(item(CAT), CreateResponse(), CreateResponse(out_of_band=True))
    assert len(made.of(ResponseCreated)) == 2
    assert not made.asked
    made.decode(made.files[0])
    assert [e.response.status for e in made.of(ResponseDone)] == ["completed"] * 2
    assert "[c]" in standing(made, 1)
    assert "[c]" in standing(made, 2)


def test_response_announced_before_a_picture_sees_it_if_it_has_not_begun() -> None:
    made = rig(decoding=False)
    made.engine.busy = True
    made.send(item("hi"), CreateResponse(), item(CAT, item_id="a"))
    made.engine.busy = False
    made.wait(1.0)
    assert not [r for r in made.engine.requests if isinstance(r, Generate)]
    made.decode(made.files[0])
    assert made.of(ResponseDone)[0].response.status == "completed"
    assert "[c]" in standing(made)


# --- files that can't be decoded ------------------------------------------------------------------


def test_refused_file_is_told_and_takes_its_item_with_it() -> None:
    made = rig()
    made.send(item("look", PicturePart(data=b"bad"), item_id="a", event_id="ev7"))
    assert made.of(ErrorRaised) == [
        ErrorRaised(
            code="damaged",
            message="The file is damaged.",
            param="item.content[1]",
            event_id="ev7",
            is_ours=False,
        )
    ]
    assert [e.item_id for e in made.of(ItemDeleted)] == ["a"]
    assert not made.of(ItemDone)


def test_waiting_response_goes_on_without_a_refused_item() -> None:
    made = rig(decoding=False)
    made.send(item("hi"), item("look", PicturePart(data=b"bad")), CreateResponse())
    made.decode(made.files[0])
    assert made.of(ResponseDone)[0].response.status == "completed"
    assert standing(made) == SYSTEM + message("hi") + ANSWER + CLOSE


def test_two_bad_files_of_an_item_are_one_error() -> None:
    made = rig(decoding=False)
    made.send(item(PicturePart(data=b"bad"), PicturePart(data=b"bad"), CAT))
    for file in list(made.files):
        made.decode(file)
    assert len(made.of(ErrorRaised)) == len(made.of(ItemDeleted)) == 1
    assert not opened(made, "image")


def test_nobody_waits_for_a_deleted_item() -> None:
    made = rig(decoding=False)
    made.send(item("hi"), item(CAT, item_id="a"), CreateResponse(), DeleteItem(item_id="a"))
    assert made.of(ResponseDone)[0].response.status == "completed"
    said = made.decode(made.files[0])
    assert said == []
    assert not opened(made, "image")


def test_nobody_is_told_of_a_deleted_items_bad_file() -> None:
    made = rig(decoding=False)
    made.send(item(PicturePart(data=b"bad"), item_id="a"), DeleteItem(item_id="a"))
    assert made.decode(made.files[0]) == []


@pytest.mark.parametrize("late", [b"d1x4", b"bad"])
def test_file_of_a_deleted_item_is_nothing_to_a_later_one_of_its_name(late: bytes) -> None:
    made = rig(decoding=False)
    made.send(item(PicturePart(data=late), item_id="a"), DeleteItem(item_id="a"))
    made.send(item(CAT, item_id="a"))
    assert made.decode(made.files[0]) == []
    made.decode(made.files[0])
    assert [e.item.item_id for e in made.of(ItemDone)] == ["a"]
    assert standing(made) == SYSTEM + message("[c]")


def test_closed_session_takes_no_media() -> None:
    made = rig(decoding=False)
    made.send(item(CAT), CreateResponse())
    made.do(lambda: made.session.transport_closed(made.now))
    assert made.decode(made.files[0]) == []
    assert not made.asked


def test_peer_is_not_read_while_many_files_wait_and_refused_past_the_limit() -> None:
    made = rig(decoding=False)
    size = 12 << 20
    made.send(item(PicturePart(data=b"c2x3".ljust(size))))
    assert made.session.wants_input()
    made.send(item(PicturePart(data=b"d2x3".ljust(size))))
    assert not made.session.wants_input()
    made.send(item(PicturePart(data=b"e2x3".ljust(size)), item_id="e", event_id="ev"))
    [error] = made.of(ErrorRaised)
    assert (error.code, error.param, error.event_id) == ("buffer_overflow", "item.content", "ev")
    assert len(made.of(ItemAdded)) == 2
    made.decode(made.files[0])
    assert made.session.wants_input()


@pytest.mark.parametrize(
    ("model", "part", "message"),
    [
        (MODEL, CAT, "This model has no eyes; it takes text and audio."),
        (ROWS_MODEL, FILM, "This model has no eyes for videos; it takes text and audio."),
    ],
)
def test_model_without_a_sense_says_what_it_takes(
    model: ModelInfo, part: Part, message: str
) -> None:
    made = rig(model)
    made.send(item("hi", part, event_id="ev"))
    assert made.of(ErrorRaised) == [
        ErrorRaised(
            code="unsupported_content",
            message=message,
            param="item.content[1].type",
            event_id="ev",
            is_ours=False,
        )
    ]
    assert not made.files
    assert not made.of(ItemAdded)


# --- in the engine --------------------------------------------------------------------------------


def test_media_are_encoded_before_anybody_asks() -> None:
    made = rig()
    made.send(item("look", CAT))
    assert standing(made) == SYSTEM + message("look[c]")
    [span] = opened(made, "image")
    assert not span.hints.live
    [close] = [r for r in made.asked if isinstance(r, CloseSpan)]
    assert close.content == span.content != ""
    before = len(made.asked)
    made.send(CreateResponse())
    assert [type(r) for r in made.asked[before:]] == [AppendTokens, Generate, AppendTokens]


def test_parts_stand_in_their_order() -> None:
    made = rig()
    made.send(item("one", CAT, "two", SOUND, FILM, "three"))
    assert standing(made) == SYSTEM + message("one[c]two[sound][f]three")
    frames = [r for r in made.asked if isinstance(r, AppendMedia) and r.span_id == 7]
    assert [(r.pts, r.shape, r.data[0]) for r in frames] == [
        (index * 500_000, (1, 28, 56, 3), ord("f") + index) for index in range(4)
    ]


def test_inline_sound_is_read_in_the_sessions_format() -> None:
    made = rig()
    made.send(UpdateSession(changes={"input_format": {"encoding": "pcmu", "rate_hz": 8_000}}))
    made.send(item(AudioPart(data=bytes(4_000))))
    [sound] = [r for r in made.asked if isinstance(r, AppendMedia)]
    assert sound.shape == (12_000,)


def test_words_of_media_are_parted_from_text_by_lines() -> None:
    made = rig(NAMING_MODEL)
    made.send(item("one", CAT, DOG, "two", FILM))
    assert standing(made) == SYSTEM + message("one\n[c]\n[d]\ntwo\n[f]")


def test_sound_that_is_heard_as_words_comes_between_the_pictures_of_its_item() -> None:
    made = rig(NAMING_MODEL)
    made.engine.transcript = " hello there"
    made.send(item(CAT, SOUND, DOG), CreateResponse())
    assert standing(made) == SYSTEM + message("[c]\nhello there\n[d]") + ANSWER + CLOSE
    made.send(item("so?"), CreateResponse())
    assert standing(made).startswith(SYSTEM + message("[c]\nhello there\n[d]") + ANSWER)


@pytest.mark.parametrize("transcript", ["", " hello there"])
def test_picture_whose_item_was_heard_first_is_seen_all_the_same(transcript: str) -> None:
    made = rig(NAMING_MODEL, decoding=False)
    made.engine.transcript = transcript
    made.send(item(CAT, SOUND))
    made.decode(made.files[0])
    made.send(CreateResponse())
    words = f"\n{transcript.strip()}" if transcript else ""
    assert standing(made) == SYSTEM + message(f"[c]{words}") + ANSWER + CLOSE


def test_several_sounds_of_an_item_are_told_once() -> None:
    made = rig(NAMING_MODEL)
    made.send(item(SOUND, CAT, SOUND), CreateResponse())
    assert standing(made) == SYSTEM + message("hello there\n[c]") + ANSWER + CLOSE


def test_deleting_an_older_item_shows_the_picture_again() -> None:
    made = rig()
    made.send(item("old", item_id="old"), item(CAT), CreateResponse(), DeleteItem(item_id="old"))
    made.send(CreateResponse())
    assert standing(made).startswith(SYSTEM + message("[c]") + ANSWER)
    assert len(opened(made, "image")) == 2


def test_deleted_picture_leaves_the_prompt() -> None:
    made = rig()
    made.send(item(CAT, item_id="a"), item("hi"), DeleteItem(item_id="a"), CreateResponse())
    assert standing(made) == SYSTEM + message("hi") + ANSWER + CLOSE


@pytest.mark.parametrize(
    "request_", [CreateResponse(out_of_band=True), CreateResponse(instructions="Be brief.")]
)
def test_fork_gets_the_same_media_by_the_same_name(request_: CreateResponse) -> None:
    made = rig()
    made.send(item("look", CAT, FILM, SOUND), request_)
    assert f"{message('look[c][f][sound]')}{ANSWER}" in standing(made, 2)
    media = {s: [] for s in (1, 2)}  # type: dict[int, list[tuple[str, str]]]
    for span in made.asked:
        if isinstance(span, OpenSpan):
            media[span.sequence_id].append((span.modality, span.content))
    assert media[1] == media[2]
    assert len(set(media[1])) == 3


def test_item_of_media_can_be_named_as_input_of_a_response() -> None:
    made = rig()
    made.send(item(CAT, item_id="a"), item("later"))
    made.send(CreateResponse(out_of_band=True, input=(ItemReference(item_id="a"),)))
    assert standing(made) == SYSTEM + message("[c]") + ANSWER


def test_input_of_a_response_takes_nothing_of_an_item_of_its_name() -> None:
    made = rig()
    made.send(item(CAT, item_id="a"))
    given = Item(item_id="a", role="user", content=(TextPart(text="mine"),))
    made.send(CreateResponse(out_of_band=True, input=(given,)))
    assert standing(made) == SYSTEM + message("mine") + ANSWER


def test_lost_engine_is_shown_everything_again() -> None:
    made = rig()
    made.send(item("look", CAT, SOUND))
    made.do(made.engine.lose)
    made.engine.info = SEEING_MODEL
    made.wait(1.0)
    made.send(CreateResponse())
    assert made.of(ResponseDone)[0].response.status == "completed"
    assert standing(made) == SYSTEM + message("look[c][sound]") + ANSWER + CLOSE
    assert len({span.content for span in opened(made, "image")}) == 1


def test_engine_that_was_busy_is_shown_a_picture_later_without_being_asked() -> None:
    made = rig()
    made.engine.busy = True
    made.send(item(CAT))
    assert not made.engine.requests
    made.engine.busy = False
    deadline = made.session.next_deadline()
    assert deadline is not None
    assert deadline - made.now < 10
    made.wait(deadline - made.now)
    taken = [type(r) for r in made.engine.requests]
    assert taken == [
        OpenSequence,
        *(AppendTokens, AppendTokens),
        *(OpenSpan, AppendMedia, CloseSpan),
        AppendTokens,
    ]


# --- beside a spoken turn -------------------------------------------------------------------------


def sound_of(made: Rig, span: OpenSpan) -> bytes:
    return b"".join(
        r.data
        for r in made.asked
        if isinstance(r, AppendMedia)
        and (r.sequence_id, r.span_id) == (span.sequence_id, span.span_id)
    )


def test_live_turn_steps_aside_for_a_picture_and_is_heard_anew_behind_it() -> None:
    made = rig(decoding=False)
    made.send(MANUAL, item("look", CAT), AppendAudio(data=HALF_SECOND))
    assert standing(made) == SYSTEM + OPEN + "[sound]"
    made.decode(made.files[0])
    assert standing(made) == SYSTEM + message("look[c]") + OPEN + "[sound]"
    first, second = opened(made, "audio")
    assert sound_of(made, second) == sound_of(made, first) != b""
    made.send(AppendAudio(data=HALF_SECOND), CommitAudio())
    assert standing(made) == SYSTEM + message("look[c]") + message("[sound]")
    assert len(sound_of(made, second)) == 4 * 24_000


def test_live_turn_is_left_alone_by_what_changes_nothing() -> None:
    made = rig(decoding=False)
    made.send(MANUAL, item(CAT, item_id="a"), item(PicturePart(data=b"bad")))
    made.send(AppendAudio(data=HALF_SECOND), DeleteItem(item_id="a"))
    before = len(made.asked)
    for file in list(made.files):
        made.decode(file)
    assert made.asked[before:] == []


def test_committed_turn_is_not_disturbed() -> None:
    made = rig(decoding=False, auto=False)
    made.send(MANUAL, AppendAudio(data=HALF_SECOND), CommitAudio(), item(CAT))
    before = len(made.asked)
    made.decode(made.files[0])
    assert made.asked[before:] == []


def test_picture_is_encoded_once_the_committed_turn_before_it_was_heard() -> None:
    made = rig(decoding=False)
    made.engine.auto = False
    made.send(MANUAL, AppendAudio(data=HALF_SECOND), CommitAudio(), item(CAT))
    made.decode(made.files[0])
    made.engine.auto = True
    [close] = [r for r in made.asked if isinstance(r, CloseSpan)]
    sequence = made.engine.sequences[close.sequence_id]

    def catch_up() -> None:
        for request in list(made.engine.requests):
            if not isinstance(request, OpenSequence):
                made.engine._receive(sequence, request)

    made.do(catch_up)
    assert standing(made) == SYSTEM + message("[sound]") + message("[c]")
    assert len(opened(made, "audio")) == 1


def test_turn_that_ends_while_a_picture_is_decoded_is_answered_with_it() -> None:
    made = rig(decoding=False)
    made.send(item("look", CAT))
    made.speak(1.0)
    made.silence(1.0)
    assert made.of(AudioCommitted)
    assert not made.of(ResponseDone)
    made.decode(made.files[0])
    assert made.of(ResponseDone)[0].response.status == "completed"
    assert standing(made) == SYSTEM + message("look[c]") + message("[sound]") + ANSWER + CLOSE


def test_picture_that_is_decoded_during_an_answer_comes_after_it() -> None:
    made = rig(decoding=False)
    made.engine.held = True
    made.send(item("hi"), CreateResponse(), item(CAT))
    made.decode(made.files[0])
    assert not opened(made, "image")
    made.do(made.engine.release)
    assert standing(made) == SYSTEM + message("hi") + ANSWER + CLOSE + message("[c]")


# --- limits ---------------------------------------------------------------------------------------


ROOMY = replace(SEEING_MODEL, max_positions=100_000)


def big(name: str) -> PicturePart:
    """A picture of 9 MiB."""
    return PicturePart(data=f"{name}20x200".encode())


def test_oldest_media_go_when_they_outgrow_the_budget() -> None:
    made = rig(ROOMY, max_media_mib=20)
    made.send(item("words"), *(item("look", big(name), item_id=name) for name in "abc"))
    assert [e.item_id for e in made.of(ItemDeleted)] == ["a"]
    made.send(CreateResponse())
    assert standing(made) == (
        SYSTEM + message("words") + message("look[b]") + message("look[c]") + ANSWER + CLOSE
    )


def test_spoken_turns_that_are_kept_count_too() -> None:
    made = rig(ROOMY, max_media_mib=16)
    made.send(item(big("a"), item_id="a"), MANUAL)
    for _ in range(2):
        made.send(*[AppendAudio(data=HALF_SECOND)] * 100, CommitAudio())  # 4.6 MiB
    assert [e.item_id for e in made.of(ItemDeleted)] == ["a"]


def test_item_that_waits_for_another_part_is_not_the_one_to_go() -> None:
    made = rig(ROOMY, decoding=False, max_media_mib=20)
    made.send(item(big("a"), CAT, item_id="a"), item(big("b"), item_id="b"), item(big("c")))
    for number in (0, 1, 1):
        made.decode(made.files[number])
    assert [e.item_id for e in made.of(ItemDeleted)] == ["b"]
    made.decode(made.files[0])
    assert "[a][c]" in standing(made)


def test_media_that_one_conversation_could_never_keep_are_refused() -> None:
    made = rig(ROOMY, max_media_mib=16)
    made.send(item("hi", item_id="hi"))
    made.send(item("look", big("a"), big("b"), item_id="a", event_id="ev"))
    [error] = made.of(ErrorRaised)
    assert (error.code, error.event_id, error.is_ours) == ("too_large", "ev", False)
    assert "take 17 MiB when they are decoded; a conversation keeps at most 16 MiB" in error.message
    assert [e.item_id for e in made.of(ItemDeleted)] == ["a"]


def test_picture_that_the_model_has_no_room_for_costs_nobody_elses_place() -> None:
    made = rig()
    made.send(item("hi"), item(big("a"), item_id="a", event_id="ev"), CreateResponse())
    [error] = made.of(ErrorRaised)
    assert (error.code, error.event_id) == ("too_large", "ev")
    assert "takes 4010 positions; this model takes at most 1472 an item" in error.message
    assert [e.item_id for e in made.of(ItemDeleted)] == ["a"]
    assert standing(made) == SYSTEM + message("hi") + ANSWER + CLOSE


def test_deleted_turn_is_not_kept() -> None:
    made = rig(auto=False)
    made.send(MANUAL, AppendAudio(data=HALF_SECOND), CommitAudio())
    [turn] = made.of(AudioCommitted)
    made.send(DeleteItem(item_id=turn.item_id))
    [span] = opened(made, "audio")
    closed = SpanClosed(
        sequence_id=span.sequence_id,
        span_id=span.span_id,
        num_positions=8,
        transcript="",
        token_ids=(),
        language=None,
        problem=None,
    )
    made.do(lambda: made.engine.emit(closed))
    made.send(CreateResponse())
    assert standing(made) == SYSTEM + ANSWER


# --- what the engine says of them -----------------------------------------------------------------


def test_usage_counts_what_the_engine_made_of_media() -> None:
    made = rig()
    made.send(item("look", CAT, FILM, SOUND), CreateResponse())
    [done] = made.of(ResponseDone)
    usage = done.response.usage
    assert usage is not None
    cat, film, sound = 2 * 3 + 2, 2 * 1 * 2 + 2, 12_000 // 1920 + 2
    assert (usage.input_image_tokens, usage.input_audio_tokens) == (cat + film, sound)
    text = SYSTEM + message("look") + ANSWER
    assert usage.input_text_tokens == len(made.prompt.tokenizer.encode_markup(text))


def test_usage_of_a_fork_counts_its_own_media() -> None:
    made = rig()
    made.send(item(CAT, item_id="a"), item(DOG, SOUND))
    made.send(CreateResponse(out_of_band=True, input=(ItemReference(item_id="a"),)))
    usage = made.of(ResponseDone)[0].response.usage
    assert usage is not None
    assert (usage.input_image_tokens, usage.input_audio_tokens) == (2 * 3 + 2, 0)


def test_usage_counts_words_of_sound_and_pictures() -> None:
    made = rig(NAMING_MODEL)
    made.send(item(CAT, SOUND), CreateResponse())
    usage = made.of(ResponseDone)[0].response.usage
    assert usage is not None
    assert usage.input_image_tokens == len("a cat")
    assert usage.input_audio_tokens == len(made.engine.transcript)


def test_context_is_fitted_by_what_the_engine_made_of_media() -> None:
    made = rig(NAMING_MODEL)
    made.engine.sight = "cat" * 130  # a picture of words is thought to take 96
    made.send(*(item(CAT, item_id=name) for name in "abc"))
    assert not made.of(ItemDeleted)
    made.send(item(CAT, item_id="d"))
    made.send(CreateResponse())
    assert [e.item_id for e in made.of(ItemDeleted)] == ["a"]
    assert made.of(ResponseDone)[0].response.status == "completed"


@pytest.mark.parametrize(("part", "modality"), [(CAT, "image"), (FILM, "video"), (SOUND, "audio")])
def test_problem_with_a_medium_is_told_with_its_item(part: Part, modality: str) -> None:
    made = rig()
    made.engine.problem = "It is blank."
    made.send(item(part, item_id="a"))
    assert made.of(ErrorRaised) == [
        ErrorRaised(
            code=f"{modality}_not_understood",
            message=f"The {modality} of item 'a': It is blank.",
            is_ours=True,
        )
    ]


@pytest.mark.parametrize("then", [[], [item(DOG)]])
def test_problem_of_a_deleted_item_is_told_nobody(then: list[CreateItem]) -> None:
    made = rig(auto=False)
    made.send(item(CAT, item_id="a"))
    [span] = opened(made, "image")
    made.send(DeleteItem(item_id="a"), *then)
    closed = SpanClosed(
        sequence_id=span.sequence_id,
        span_id=span.span_id,
        num_positions=0,
        transcript="",
        token_ids=(),
        language=None,
        problem="It is blank.",
    )
    assert made.do(lambda: made.engine.emit(closed)) == []


def test_metadata_name_what_put_pictures_into_words() -> None:
    made = rig(NAMING_MODEL)
    made.send(CreateResponse(), item(CAT), CreateResponse(metadata={"k": "v"}))
    made.send(CreateResponse(metadata={"image_encoder": "mine"}), item(FILM), CreateResponse())
    assert [e.response.metadata for e in made.of(ResponseDone)] == [
        None,
        {"image_encoder": "fake-labels", "k": "v"},
        {"image_encoder": "mine"},
        {"image_encoder": "fake-labels", "video_encoder": "fake-film-labels"},
    ]


def test_metadata_name_nobody_where_pictures_are_rows() -> None:
    made = rig()
    made.send(item(CAT, FILM), CreateResponse(metadata={"k": "v"}))
    assert made.of(ResponseDone)[0].response.metadata == {"k": "v"}
