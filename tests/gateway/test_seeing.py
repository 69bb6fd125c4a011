"""A camera beside the sound: frames get their places in spoken turns by media time alone."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fakes import MODEL, NAMING_MODEL, ROWS_MODEL, SEEING_MODEL
from hypothesis import given, settings
from hypothesis import strategies as st
from session_rig import Rig

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    CloseSpan,
    Generate,
    ModelInfo,
    OpenSpan,
    Rollback,
)
from sensorium.gateway.client_events import (
    AppendAudio,
    AppendPicture,
    ClearAudio,
    ClientEvent,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    RetrieveItem,
    UpdateSession,
)
from sensorium.gateway.items import AudioPart, Item, PicturePart, TextPart, VideoPart
from sensorium.gateway.server_events import (
    AudioCommitted,
    ErrorRaised,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ResponseDone,
    ServerEvent,
    TranscriptCompleted,
    TranscriptDelta,
)
from sensorium.gateway.settings import SessionSettings

RATE_HZ = 24_000
SYSTEM, OPEN, CLOSE = "<|im_start|>system\nS<|im_end|>\n", "<|im_start|>user\n", "<|im_end|>\n"
ANSWER = "<|im_start|>assistant\n"
TONE = (0.2 * np.sin(np.arange(20 * RATE_HZ) * 0.1) * 32767).astype("<i2")


def rig(
    model: ModelInfo = SEEING_MODEL,
    *,
    manual: bool = True,
    interleave: float | None = None,
    decoding: bool = True,
    auto: bool = True,
    live: bool = False,
) -> Rig:
    limits = SessionSettings(default_instructions="S")
    made = Rig(model=model, auto=auto, live=live, settings=limits)
    made.decoding = decoding
    changes: dict[str, object] = {"interleave": interleave}
    made.send(UpdateSession(changes=changes | ({"turn_detection": None} if manual else {})))
    return made


def sound(start_s: float, end_s: float) -> AppendAudio:
    return AppendAudio(data=TONE[round(start_s * RATE_HZ) : round(end_s * RATE_HZ)].tobytes())


def frame(name: str, size: str = "1x2", event_id: str | None = None) -> AppendPicture:
    """Return a frame of its own shade; the 28 letters from a on are far enough apart."""
    return AppendPicture(data=bytes([9 * (ord(name) - 96)]) + size.encode(), event_id=event_id)


def scene(end_s: float, **times: float) -> list[ClientEvent]:
    """Return sound up to `end_s`, with frames by their names at times in between."""
    events: list[ClientEvent] = []
    at = 0.0
    for name, time in times.items():
        events += [sound(at, time)] * (time > at) + [frame(name)]
        at = time
    return [*events, sound(at, end_s)]


def standing(made: Rig) -> str:
    """Return what stands in the newest sequence: text, sound as its milliseconds, frames by their
    names; for example <user>[abc][1500][d]."""
    newest = made.asked[-1].sequence_id
    spans: dict[int, str] = {}
    lengths: dict[int, int] = {}
    for request in made.asked:
        if request.sequence_id != newest:
            continue
        match request:
            case AppendTokens(span_id=span, token_ids=ids):
                spans[span] = made.prompt.tokenizer.spell(ids)
            case OpenSpan(span_id=span):
                spans[span] = ""
            case AppendMedia(span_id=span, dtype="uint8", data=data):
                spans[span] += chr(96 + data[0] // 9)
            case AppendMedia(span_id=span, shape=shape):
                lengths[span] = lengths.get(span, 0) + shape[0]
            case CloseSpan(span_id=span):
                rate_hz = made.engine.info.audio_rate_hz if made.engine.info else 1
                told = str(1000 * lengths[span] // rate_hz) if span in lengths else spans[span]
                spans[span] = f"[{told}]"
            case Rollback(keep_through=keep):
                spans = {s: text for s, text in spans.items() if keep is not None and s <= keep}
            case _:
                pass
    return "".join(spans.values())


def times(made: Rig, modality: str) -> list[list[int]]:
    """Return the times in ms of the frames of each clip of a modality."""
    clips = [r for r in made.asked if isinstance(r, OpenSpan) and r.modality == modality]
    return [
        [
            round(r.pts / 1000)
            for r in made.asked
            if isinstance(r, AppendMedia) and r.span_id == clip.span_id
        ]
        for clip in clips
    ]


def turn(*parts: str) -> str:
    return SYSTEM + OPEN + "".join(parts) + CLOSE


# --- places in a turn -----------------------------------------------------------------------------


def test_frames_stand_at_the_end_of_a_turn_and_the_newest_before_it_at_its_front() -> None:
    made = rig()
    made.send(frame("x"), frame("a"), *scene(4.0, b=1.0, c=2.0, d=2.5), CommitAudio())
    assert standing(made) == turn("[a]", "[4000]", "[bcd]")
    assert times(made, "video") == [[0, 1000, 1500]]
    assert made.session.frame_counts == {"unused": 1, "taken": 4}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (1.5, "[1500][a][1500][bc][1500][d][500]"),
        (2.0, "[2000][ab][2000][cd][1000]"),
        (10.0, "[5000][abcd]"),
    ],
)
def test_frames_wait_so_many_seconds_for_their_place(seconds: float, expected: str) -> None:
    made = rig(interleave=seconds)
    made.send(*scene(5.0, a=0.5, b=1.6, c=2.2, d=3.8), CommitAudio())
    assert standing(made) == turn(expected)


def test_sound_is_not_cut_where_nothing_waits() -> None:
    made = rig(interleave=1.0)
    made.send(*scene(9.0, a=5.5), CommitAudio())
    assert standing(made) == turn("[5500][a][3500]")


def test_pause_of_the_speaker_gives_frames_their_place() -> None:
    made = rig(manual=False, interleave=30.0)
    made.speak(1.0)
    made.send(frame("a"))
    made.speak(0.6)
    made.send(frame("b"))
    made.silence(0.3)
    made.speak(0.2)
    made.send(frame("c"))
    made.speak(0.8)
    made.silence(0.6)
    made.send(frame("d"))  # what comes after the turn is not of it
    first, seen, second, last, third = standing(made).removeprefix(SYSTEM + OPEN).split("]")[:5]
    assert (seen, last) == ("[ab", "[c")
    assert 1600 + 192 <= int(first[1:]) <= 1600 + 192 + 64
    assert abs(int(second[1:]) - 1300) <= 64
    assert abs(int(third[1:]) - (500 - 192)) <= 64
    [done] = made.of(ResponseDone)
    assert done.response.status == "completed"


def test_frame_before_speech_is_shown_before_it_and_none_between_turns_is_decoded() -> None:
    made = rig(manual=False, decoding=False)
    made.silence(1.0)
    for name in "abc":
        made.send(frame(name))
        made.silence(0.5)
    assert made.files == []
    made.decoding = True
    made.speak(1.0)
    made.silence(1.0)
    assert standing(made).startswith(SYSTEM + OPEN + "[c][")
    assert made.session.frame_counts == {"unused": 2, "taken": 1}


def test_each_turn_shows_the_scene_even_if_it_is_still() -> None:
    made = rig()
    for second in range(3):
        made.send(frame("a"), sound(second, second + 1), CommitAudio())
    message = OPEN + "[a][1000]" + CLOSE
    assert standing(made) == SYSTEM + message * 3


def test_frame_of_another_size_is_not_of_the_same_video() -> None:
    made = rig()
    made.send(*scene(1.0, a=0.0, b=0.5), frame("c", "2x2"))
    made.send(sound(1.0, 2.0), frame("d", "2x2"), sound(2.0, 3.0), CommitAudio())
    assert standing(made) == turn("[a]", "[3000]", "[b]", "[cd]")


def test_model_without_videos_gets_pictures_and_one_without_pictures_a_video() -> None:
    eyes = dict(SEEING_MODEL.intakes)
    film = eyes.pop("video")
    made = rig(replace(SEEING_MODEL, intakes=eyes))
    made.send(*scene(4.0, a=0.0, b=1.0, c=2.5), CommitAudio())
    assert standing(made) == turn("[a]", "[4000]", "[b]", "[c]")
    made = rig(replace(ROWS_MODEL, intakes={**ROWS_MODEL.intakes, "video": film}))
    made.send(*scene(4.0, a=0.0), CommitAudio())
    assert [r.modality for r in made.asked if isinstance(r, OpenSpan)] == ["video", "audio"]


def test_item_lists_its_parts_in_order() -> None:
    made = rig(interleave=2.0)
    made.send(*scene(6.0, a=0.0, b=1.0, c=1.9, d=4.5), CommitAudio())
    [added], [done] = made.of(ItemAdded), made.of(ItemDone)
    audio = AudioPart()
    assert done.item.content == (PicturePart(), audio, VideoPart(), audio, PicturePart(), audio)
    assert added.item == done.item
    made.send(RetrieveItem(item_id=done.item.item_id))
    assert made.of(ItemRetrieved)[0].item == done.item


@given(cuts=st.lists(st.integers(0, 6 * RATE_HZ), max_size=12), manual=st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_packets_of_sound_give_the_same_places(cuts: list[int], manual: bool) -> None:
    """Frames have their times; packets are cut there and anywhere else."""
    at = {"a": 0, "b": 20_011, "c": 60_000, "d": 60_001, "e": 100_003}
    made = rig(manual=manual, interleave=2.0)
    tone = TONE[: 6 * RATE_HZ].copy()
    tone[24_000:34_000] = tone[120_000:] = 0
    edges = sorted({0, len(tone), *cuts, *at.values()})
    frames = {time: name for name, time in at.items()}
    for start, end in pairwise(edges):
        if start in frames:
            made.send(frame(frames[start]))
        made.send(AppendAudio(data=tone[start:end].tobytes()))
    if manual:
        made.send(CommitAudio())
        assert standing(made) == turn("[a][2000][b][2000][c][2000][e]")
    else:
        assert standing(made) == turn("[a][1216][b][2000][c][2000][e][320]") + ANSWER + CLOSE


def test_only_a_begun_row_and_frames_are_left_for_the_commit() -> None:
    made = rig(interleave=2.0)
    for number in range(250):
        if number in (60, 150):
            made.send(frame("ab"[number // 150]))
        made.send(sound(number / 50, (number + 1) / 50))
        pieces = [r for r in made.asked if isinstance(r, AppendMedia) and r.dtype == "float32"]
        assert sum(r.shape[0] for r in pieces) > (number + 1) * 480 - 1920
    assert standing(made).startswith(SYSTEM + OPEN + "[2000][a][2000][b]")


# --- decoding -------------------------------------------------------------------------------------


def test_places_do_not_depend_on_how_fast_frames_are_decoded() -> None:
    events = [*scene(8.0, a=0.0, b=1.0, c=1.9, d=4.5, e=6.9), CommitAudio()]
    made = rig(interleave=2.0)
    made.send(*events)
    slow = rig(interleave=2.0, decoding=False)
    slow.send(*events)
    assert [len(slow.files), slow.of(ItemDone)] == [2, []]
    while slow.files:
        slow.decode(slow.files[-1])
    assert standing(slow) == standing(made) == turn("[a][2000][bc][2500][d][2400][e][1100]")
    assert [e.item for e in slow.of(ItemDone)] == [e.item for e in made.of(ItemDone)]


def test_response_waits_for_frames_that_are_still_decoded() -> None:
    made = rig(decoding=False)
    made.send(*scene(1.0, a=0.5), CommitAudio(), CreateResponse())
    assert not made.of(ItemDone)
    assert not [r for r in made.asked if isinstance(r, Generate)]
    said = made.decode(made.files[0])
    assert isinstance(said[0], ItemDone)
    assert said[0].item.content == (AudioPart(), PicturePart())
    assert made.of(ResponseDone)[0].response.status == "completed"
    assert standing(made) == turn("[1000][a]") + ANSWER + CLOSE


def test_sound_goes_on_as_one_where_frames_show_nothing_new() -> None:
    for decoding in (True, False):
        made = rig(interleave=1.0, decoding=decoding)
        made.send(frame("a"))
        for second in range(4):
            made.send(sound(second, second + 1), frame("a"))
        made.send(CommitAudio())
        while made.files:
            made.decode(made.files[0])
        assert standing(made) == turn("[a][4000]")
        assert made.session.frame_counts == {"taken": 1, "still": 4}


def test_fast_camera_is_thinned_before_anything_is_decoded() -> None:
    made = rig(decoding=False)
    for number in range(90):
        made.send(sound(number / 30, (number + 1) / 30), frame(chr(97 + number % 20)))
        while made.files:
            made.decode(made.files[0])
    made.send(CommitAudio())
    counts = made.session.frame_counts
    assert counts["taken"] == pytest.approx(6, abs=1)
    assert counts["taken"] + counts["skipped"] == 90


def test_sound_behind_frames_waits_until_they_are_decoded() -> None:
    made = rig(interleave=1.0, decoding=False)
    made.send(*scene(3.0, a=0.5))
    sent = [r for r in made.asked if isinstance(r, AppendMedia)]
    assert sum(r.shape[0] for r in sent) == RATE_HZ
    assert not [r for r in made.asked if isinstance(r, CloseSpan)]
    made.decode(made.files[0])
    sent = [r for r in made.asked if isinstance(r, AppendMedia) and r.dtype == "float32"]
    assert sum(r.shape[0] for r in sent) == 3 * RATE_HZ


def test_file_that_is_no_picture_is_told_and_passed_over() -> None:
    made = rig(interleave=1.0)
    made.send(sound(0.0, 0.5), AppendPicture(data=b"bad", event_id="e"), sound(0.5, 3.0))
    made.send(CommitAudio())
    [error] = made.of(ErrorRaised)
    assert (error.code, error.param, error.event_id) == ("damaged", "image", "e")
    assert not error.is_ours
    assert standing(made) == turn("[3000]")
    assert made.session.frame_counts == {"refused": 1}


# --- pictures without sound -----------------------------------------------------------------------


def test_commit_of_frames_without_sound_is_a_turn_of_the_newest() -> None:
    made = rig()
    made.send(frame("a"), frame("b"), CommitAudio(), CreateResponse())
    assert standing(made) == turn("[b]") + ANSWER + CLOSE
    [done] = [e for e in made.of(ItemDone) if e.item.role == "user"]
    assert done.item.content == (PicturePart(),)


def test_commit_of_nothing_is_refused() -> None:
    made = rig()
    made.send(frame("a"), CommitAudio(), CommitAudio())
    assert [e.code for e in made.of(ErrorRaised)] == ["input_audio_buffer_commit_empty"]


def test_turn_of_which_nothing_is_left_goes() -> None:
    made = rig()
    made.send(AppendPicture(data=b"bad"), CommitAudio(), CreateResponse())
    [added] = [e for e in made.of(ItemAdded) if e.item.role == "user"]
    assert [e.item_id for e in made.of(ItemDeleted)] == [added.item.item_id]
    assert made.of(ResponseDone)[0].response.status == "completed"
    assert standing(made) == SYSTEM + ANSWER + CLOSE


def test_clearing_the_sound_clears_the_frames() -> None:
    made = rig(interleave=1.0)
    made.send(*scene(3.0, a=0.0, b=0.5, c=2.8), frame("d"), ClearAudio(), CommitAudio())
    assert [e.code for e in made.of(ErrorRaised)] == ["input_audio_buffer_commit_empty"]
    made.send(sound(3.0, 4.0), frame("e"), CommitAudio())
    assert standing(made) == turn("[1000][e]")


def test_clearing_leaves_frames_of_a_turn_that_has_ended() -> None:
    made = rig(decoding=False)
    made.send(*scene(1.0, a=0.5), CommitAudio(), frame("b"), ClearAudio())
    made.decode(made.files[0])
    assert standing(made) == turn("[1000][a]")


# --- sequences that are lost ----------------------------------------------------------------------


@pytest.mark.parametrize("model", [SEEING_MODEL, NAMING_MODEL])
@pytest.mark.parametrize("committed", [False, True])
def test_engine_that_is_lost_gets_the_same_again(committed: bool, model: ModelInfo) -> None:
    whole = rig(model, interleave=2.0)
    events = [*scene(5.0, a=0.0, b=1.0, c=1.9, d=4.5), CommitAudio()]
    whole.send(*events)
    made = rig(model, interleave=2.0, auto=False)  # nothing is heard to its end
    made.send(*events[: None if committed else -2])
    made.do(made.engine.lose)
    made.engine.info, made.engine.auto = model, True
    made.wait(1.0)
    made.send(*events[9 if committed else -2 :], CreateResponse())
    assert standing(made) == standing(whole) + ANSWER + CLOSE


def test_turn_is_replayed_from_the_conversation_as_it_was() -> None:
    made = rig(interleave=2.0)
    made.send(*scene(5.0, a=0.0, b=1.0, c=1.9, d=4.5), CommitAudio())
    first = [r for r in made.asked if not isinstance(r, OpenSpan)]
    names = [r.content for r in made.asked if isinstance(r, CloseSpan)]
    start = len(made.asked)
    made.send(CreateResponse(out_of_band=True))
    assert standing(made) == turn("[a][2000][bc][2500][d][500]") + ANSWER
    again = made.asked[start:]
    assert [r.content for r in again if isinstance(r, CloseSpan)] == names
    assert [r.content for r in again if isinstance(r, OpenSpan)] == names
    assert media(again) == media(first)


def media(requests: object) -> bytes:
    assert isinstance(requests, list)
    return b"".join(r.data for r in requests if isinstance(r, AppendMedia))


def test_turn_stands_for_the_next_answer_without_being_encoded_again() -> None:
    for model in (SEEING_MODEL, NAMING_MODEL):
        made = rig(model, interleave=1.0)
        made.send(*scene(3.0, a=0.0, b=0.5, c=0.9), CommitAudio())
        start = len(made.asked)
        made.send(CreateResponse(), CreateResponse())
        assert not [r for r in made.asked[start:] if isinstance(r, OpenSpan | Rollback)]


def test_turn_makes_way_for_an_answer_and_is_heard_again() -> None:
    made = rig(interleave=1.0)
    made.send(*scene(3.0, a=0.0, b=0.5), CreateResponse(), CommitAudio())
    assert standing(made).endswith(OPEN + "[a][1000][b][2000]" + CLOSE)


def test_deleted_turn_leaves_nothing_behind() -> None:
    made = rig(decoding=False)
    made.send(*scene(1.0, a=0.5), CommitAudio())
    made.send(DeleteItem(item_id=made.of(AudioCommitted)[0].item_id))
    made.decode(made.files[0])
    assert not made.of(ItemDone)
    text = Item(item_id="", role="user", content=(TextPart(text="Hi"),))
    made.send(CreateItem(item=text), CreateResponse())
    assert standing(made) == turn("Hi") + ANSWER + CLOSE


# --- words ----------------------------------------------------------------------------------------


def test_words_of_a_turn_are_told_as_one_transcript() -> None:
    made = rig(NAMING_MODEL, interleave=2.0, live=True)
    made.send(UpdateSession(changes={"transcription": {}}))
    made.send(*scene(4.0, a=0.0, b=0.5, c=1.9), CommitAudio())
    [told] = made.of(TranscriptCompleted)
    assert told.text == "hello there hello there"
    assert told.seconds == pytest.approx(4.0, abs=0.1)
    assert "".join(e.text for e in made.of(TranscriptDelta)) == told.text
    audio = AudioPart(transcript="hello there")
    made.send(RetrieveItem(item_id=told.item_id))
    seen = made.of(ItemRetrieved)[0].item.content
    assert seen == (PicturePart(), audio, VideoPart(), audio)


def test_words_of_pictures_and_sound_are_divided() -> None:
    made = rig(NAMING_MODEL, interleave=2.0)
    made.send(*scene(4.0, a=0.0, b=0.5, c=1.9), CommitAudio())
    assert standing(made).startswith(SYSTEM + OPEN + "[a]\n[")
    assert standing(made).count("]\n[") == 3


def test_order_of_events_is_the_protocols() -> None:
    made = rig(NAMING_MODEL, decoding=False)
    made.send(UpdateSession(changes={"transcription": {}}))
    start = len(made.said)
    made.send(*scene(1.0, a=0.5), CommitAudio())
    made.decode(made.files[0])
    kinds: list[type[ServerEvent]] = [type(e) for e in made.said[start:]]
    assert kinds == [AudioCommitted, ItemAdded, ItemDone, TranscriptDelta, TranscriptCompleted]


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [MODEL, ROWS_MODEL])
def test_model_without_eyes_refuses_frames(model: ModelInfo) -> None:
    made = rig(model)
    made.send(frame("a", event_id="e"))
    [error] = made.of(ErrorRaised)
    assert (error.code, error.event_id) == ("unsupported_content", "e")
    assert "no eyes" in error.message


def test_turn_takes_frames_up_to_half_of_the_models_positions() -> None:
    model = replace(SEEING_MODEL, max_positions=160)
    made = rig(model, interleave=1.0, auto=False)
    for second in range(5):
        made.send(sound(second, second + 1), frame(chr(97 + second), "4x4"))
    made.send(sound(5, 6), CommitAudio())
    assert made.session.frame_counts == {"taken": 4, "dropped": 1}


def test_of_frames_that_wait_the_oldest_are_dropped() -> None:
    made = rig()  # the model's videos have 8 frames
    for second in range(12):
        made.send(sound(second, second + 1), frame(chr(97 + second)))
    made.send(CommitAudio())
    assert standing(made) == turn("[12000]", "[efghijkl]")
    assert made.session.frame_counts == {"taken": 8, "dropped": 4}
