"""The session through its faces: what the peer is told, in which order, and what is asked."""

import pytest
from session_rig import Rig

from sensorium.core.api import (
    Anticipate,
    AppendMedia,
    CloseSequence,
    Generate,
    Heard,
    Interrupt,
    OpenSpan,
    Rollback,
)
from sensorium.gateway.client_events import (
    AppendAudio,
    CancelResponse,
    ClearAudio,
    ClientEvent,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    RetrieveItem,
    UpdateSession,
)
from sensorium.gateway.items import AudioPart, Item, ItemReference, TextPart
from sensorium.gateway.server_events import (
    AudioCommitted,
    ErrorRaised,
    ItemDeleted,
    ItemRetrieved,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ServerEvent,
    SessionUpdated,
    SpeechStarted,
    SpeechStopped,
    TranscriptCompleted,
    TranscriptDelta,
    TranscriptFailed,
    TranscriptPartial,
)
from sensorium.gateway.settings import SessionSettings

TRANSCRIBE = UpdateSession(changes={"transcription": {"model": "default"}})
MANUAL = UpdateSession(changes={"turn_detection": None})


def names(events: list[ServerEvent]) -> list[str]:
    return [type(event).__name__ for event in events]


def text_item(text: str, item_id: str = "", role: str = "user") -> CreateItem:
    item = Item(item_id=item_id, role=role, content=(TextPart(text=text),))  # type: ignore[arg-type]  # str literals
    return CreateItem(item=item)


def only_error(events: list[ServerEvent]) -> ErrorRaised:
    (error,) = [event for event in events if isinstance(event, ErrorRaised)]
    return error


def test_session_introduces_itself_first() -> None:
    assert names(Rig().said) == ["SessionCreated"]


def test_text_response_keeps_the_wire_order() -> None:
    rig = Rig()
    assert names(rig.send(text_item("Hello"))) == ["ItemAdded", "ItemDone"]
    said = rig.send(CreateResponse(metadata={"a": "b"}))
    order = list(dict.fromkeys(names(said)))
    assert order == [
        "ResponseCreated",
        "OutputItemAdded",
        "ItemAdded",
        "OutputPartAdded",
        "OutputTextDelta",
        "OutputTextDone",
        "OutputPartDone",
        "ItemDone",
        "OutputItemDone",
        "ResponseDone",
    ]
    done = rig.of(ResponseDone)[0].response
    assert done.status == "completed"
    assert done.metadata == {"a": "b"}
    assert done.output[0].content == (TextPart(text="General Kenobi."),)
    assert "".join(d.text for d in rig.of(OutputTextDelta)) == "General Kenobi."


def test_spoken_turn_is_told_committed_transcribed_and_answered() -> None:
    rig = Rig()
    rig.send(TRANSCRIBE)
    said = [*rig.silence(1.0), *rig.speak(1.0), *rig.silence(1.0)]
    order = list(dict.fromkeys(names(said)))
    assert order[:8] == [
        "SpeechStarted",
        "SpeechStopped",
        "AudioCommitted",
        "ItemAdded",
        "ItemDone",
        "TranscriptDelta",
        "TranscriptCompleted",
        "ResponseCreated",
    ]
    started, stopped = rig.of(SpeechStarted)[0], rig.of(SpeechStopped)[0]
    assert started.item_id == stopped.item_id == rig.of(AudioCommitted)[0].item_id
    assert 600 <= started.audio_start_ms <= 760  # speech at 1000 ms less 300 ms of padding
    assert 2400 <= stopped.audio_end_ms <= 2700  # end at 2000 ms plus 500 ms of silence
    assert rig.of(TranscriptCompleted)[0].text == "hello there"
    assert rig.of(ResponseDone)[0].response.status == "completed"


@pytest.mark.parametrize("packet_ms", [3, 20, 500])
def test_turns_do_not_depend_on_packets(packet_ms: int) -> None:
    def times(packet_ms: int) -> list[int]:
        rig = Rig()
        rig.silence(0.5, packet_ms=packet_ms)
        rig.speak(1.0, packet_ms=packet_ms)
        rig.silence(1.0, packet_ms=packet_ms)
        started = [e.audio_start_ms for e in rig.of(SpeechStarted)]
        return started + [e.audio_end_ms for e in rig.of(SpeechStopped)]

    assert times(packet_ms) == times(100)


def test_speech_reaches_the_engine_before_the_turn_ends() -> None:
    rig = Rig()
    rig.speak(3.0)
    sent = sum(r.shape[0] for r in rig.asked if isinstance(r, AppendMedia))
    assert sent >= 2.5 * 16_000
    assert not rig.of(AudioCommitted)


def test_a_pause_lets_the_encoder_prepare_the_end_with_all_sound_at_hand() -> None:
    rig = Rig(auto=False)
    rig.speak(1.0)
    rig.silence(0.3)
    place = next(i for i, r in enumerate(rig.asked) if isinstance(r, Anticipate))
    sent = sum(r.shape[0] for r in rig.asked[:place] if isinstance(r, AppendMedia))
    assert sent >= 1.15 * 16_000
    assert not rig.of(SpeechStopped)
    rig.silence(1.0)
    assert sum(isinstance(r, Anticipate) for r in rig.asked) == 1


def test_live_transcript_grows_while_the_user_speaks() -> None:
    rig = Rig(live=True, auto=False)
    rig.send(TRANSCRIBE)
    rig.speak(1.0)
    span = next(r for r in rig.asked if isinstance(r, OpenSpan))
    rig.do(lambda: rig.engine.emit(heard(span, " What is", " the")))
    rig.do(lambda: rig.engine.emit(heard(span, " the capital", "")))
    assert [e.text for e in rig.of(TranscriptDelta)] == ["What is", " the capital"]
    assert [e.text for e in rig.of(TranscriptPartial)] == [" the", ""]
    assert {e.item_id for e in rig.of(TranscriptDelta)} == {rig.of(SpeechStarted)[0].item_id}


def test_without_opt_in_no_transcript_comes_before_its_item() -> None:
    rig = Rig(auto=False)
    rig.send(TRANSCRIBE)
    rig.speak(1.0)
    span = next(r for r in rig.asked if isinstance(r, OpenSpan))
    rig.do(lambda: rig.engine.emit(heard(span, " What", " is")))
    assert not rig.of(TranscriptDelta)
    assert not rig.of(TranscriptPartial)


def test_words_the_model_cannot_hear_get_a_reason_and_no_answer() -> None:
    rig = Rig()
    rig.engine.problem = "This does not sound like English."
    rig.send(TRANSCRIBE)
    rig.speak(1.0)
    rig.silence(1.0)
    assert rig.of(TranscriptFailed)[0].message == "This does not sound like English."
    assert not rig.of(ResponseCreated)


def test_a_turn_without_words_is_not_answered() -> None:
    rig = Rig()
    rig.engine.transcript = ""
    rig.send(TRANSCRIBE)
    rig.speak(1.0)
    rig.silence(1.0)
    assert rig.of(TranscriptCompleted)[0].text == ""
    assert not rig.of(ResponseCreated)


def test_no_response_without_create_response() -> None:
    rig = Rig()
    rig.send(UpdateSession(changes={"turn_detection": {"create_response": False}}))
    rig.speak(1.0)
    rig.silence(1.0)
    assert rig.of(AudioCommitted)
    assert not rig.of(ResponseCreated)


def test_silence_duration_is_honoured() -> None:
    rig = Rig()
    rig.send(UpdateSession(changes={"turn_detection": {"silence_duration_ms": 2000}}))
    rig.speak(1.0)
    rig.silence(1.5)
    assert not rig.of(SpeechStopped)
    rig.silence(1.0)
    assert rig.of(SpeechStopped)


def test_manual_turn_is_committed_without_a_response() -> None:
    rig = Rig()
    rig.send(MANUAL, TRANSCRIBE)
    rig.speak(1.0)
    said = rig.send(CommitAudio())
    assert names(said)[:3] == ["AudioCommitted", "ItemAdded", "ItemDone"]
    assert rig.of(TranscriptCompleted)[0].seconds == pytest.approx(1.0, abs=0.01)
    assert not rig.of(ResponseCreated)
    rig.send(CreateResponse())
    assert rig.of(ResponseDone)[0].response.status == "completed"


@pytest.mark.parametrize("setup", [[], [MANUAL]])
def test_commit_of_nothing_names_the_need(setup: list[ClientEvent]) -> None:
    rig = Rig()
    rig.send(*setup)
    rig.speak(0.05)
    error = only_error(rig.send(CommitAudio(event_id="c1")))
    assert error.code == "input_audio_buffer_commit_empty"
    assert error.event_id == "c1"
    assert "100 ms" in error.message


def test_commit_after_an_automatic_one_is_empty() -> None:
    rig = Rig()
    rig.speak(1.0)
    rig.silence(2.0)
    assert only_error(rig.send(CommitAudio())).code == "input_audio_buffer_commit_empty"


def test_commit_during_detected_speech_takes_the_reserved_id() -> None:
    rig = Rig()
    rig.speak(1.0)
    said = rig.send(CommitAudio())
    assert rig.of(AudioCommitted)[0].item_id == rig.of(SpeechStarted)[0].item_id
    assert "SpeechStopped" not in names(said)
    rig.speak(0.5)
    assert len(rig.of(SpeechStarted)) == 2


def test_clear_rolls_the_open_turn_back() -> None:
    rig = Rig()
    rig.send(MANUAL)
    rig.speak(1.0)
    assert names(rig.send(ClearAudio())) == ["AudioCleared"]
    assert isinstance(rig.asked[-1], Rollback)
    assert only_error(rig.send(CommitAudio())).code == "input_audio_buffer_commit_empty"


def test_barge_in_closes_the_response_and_keeps_its_text() -> None:
    rig = Rig()
    rig.engine.held = True
    rig.send(text_item("Hello"), CreateResponse())
    said = rig.speak(0.5)
    assert names(said)[:6] == [
        "SpeechStarted",
        "OutputTextDone",
        "OutputPartDone",
        "ItemDone",
        "OutputItemDone",
        "ResponseDone",
    ]
    done = rig.of(ResponseDone)[0].response
    assert (done.status, done.reason) == ("cancelled", "turn_detected")
    assert done.output[0].status == "incomplete"
    partial = done.output[0].content[0]
    assert isinstance(partial, TextPart)
    assert partial.text == "Ge"
    assert any(isinstance(r, Interrupt) for r in rig.asked)
    rig.engine.held = False
    rig.silence(1.0)
    assert rig.of(ResponseDone)[1].response.status == "completed"
    assert f"assistant\n{partial.text}\n" in rig.prompt_text()


def test_speech_that_may_not_interrupt_is_heard_after_the_response() -> None:
    rig = Rig()
    rig.send(UpdateSession(changes={"turn_detection": {"interrupt_response": False}}), TRANSCRIBE)
    rig.engine.held = True
    rig.send(text_item("Hello"), CreateResponse())
    rig.speak(1.0)
    rig.silence(1.0)
    assert not rig.of(ResponseDone)
    assert not rig.of(TranscriptCompleted)
    rig.do(rig.engine.release)
    assert [d.response.status for d in rig.of(ResponseDone)] == ["completed", "completed"]
    assert rig.of(TranscriptCompleted)


def test_cancel_twice_and_with_a_wrong_id() -> None:
    rig = Rig()
    rig.engine.held = True
    rig.send(text_item("Hello"), CreateResponse())
    assert only_error(rig.send(CancelResponse(response_id="resp_x"))).code == (
        "response_cancel_not_active"
    )
    rig.send(CancelResponse())
    done = rig.of(ResponseDone)[0].response
    assert (done.status, done.reason) == ("cancelled", "client_cancelled")
    error = only_error(rig.send(CancelResponse(event_id="c")))
    assert error.message.startswith("Cancellation failed")
    before = len(rig.said)
    rig.do(rig.engine.release)
    assert len(rig.said) == before


def test_second_response_is_refused_with_the_running_ones_id() -> None:
    rig = Rig()
    rig.engine.held = True
    rig.send(text_item("Hello"), CreateResponse())
    error = only_error(rig.send(CreateResponse(event_id="r2")))
    assert error.code == "conversation_already_has_active_response"
    assert rig.of(ResponseCreated)[0].response.response_id in error.message
    assert error.event_id == "r2"


def test_out_of_band_responses_run_beside_and_leave_no_items() -> None:
    rig = Rig()
    rig.engine.held = True
    rig.send(text_item("Hello", "i1"), CreateResponse())
    aside = CreateResponse(out_of_band=True, input=(ItemReference(item_id="i1"),))
    said = rig.send(aside, aside)
    assert "ItemAdded" not in names(said)
    rig.do(rig.engine.release)
    assert len(rig.of(ResponseDone)) == 3
    assert [r.response.conversation_id is None for r in rig.of(ResponseCreated)] == [
        False,
        True,
        True,
    ]
    closed = [r for r in rig.asked if isinstance(r, CloseSequence)]
    assert len(closed) == 2


def test_unknown_reference_is_refused() -> None:
    error = only_error(Rig().send(CreateResponse(input=(ItemReference(item_id="nope"),))))
    assert error.code == "invalid_value"


def test_prompt_is_extended_not_resent() -> None:
    rig = Rig()
    rig.send(text_item("first question"), CreateResponse())
    rig.send(text_item("second question"), CreateResponse())
    assert rig.prompt_text().count("first question") == 1
    assert not any(isinstance(r, Rollback) for r in rig.asked)


def test_deleted_item_leaves_the_prompt() -> None:
    rig = Rig()
    rig.send(text_item("keep me", "a"), text_item("drop me", "b"), text_item("and me", "c"))
    rig.send(CreateResponse())
    assert names(rig.send(DeleteItem(item_id="b"))) == ["ItemDeleted"]
    rig.send(CreateResponse())
    assert any(isinstance(r, Rollback) for r in rig.asked)
    assert rig.prompt_text().count("keep me") == 1
    assert rig.prompt_text().count("drop me") == 1
    assert rig.prompt_text().count("and me") == 2


def test_changed_instructions_reach_the_next_response() -> None:
    rig = Rig()
    rig.send(text_item("Hello"), CreateResponse())
    rig.send(UpdateSession(changes={"instructions": "Speak like a pirate."}), CreateResponse())
    assert "Speak like a pirate." in rig.prompt_text()
    assert rig.of(SessionUpdated)[0].config.instructions == "Speak like a pirate."


def test_items_root_after_unknown_duplicate() -> None:
    rig = Rig()
    rig.send(text_item("b", "b"))
    item = Item(item_id="a", role="user", content=(TextPart(text="a"),))
    added = rig.send(CreateItem(item=item, previous_item_id="root"))[0]
    assert getattr(added, "previous_item_id", "x") is None
    assert only_error(rig.send(text_item("b", "b"))).code == "item_create_duplicate_item_id"
    other = Item(item_id="c", role="user", content=(TextPart(text="c"),))
    unknown = rig.send(CreateItem(item=other, previous_item_id="zz"))
    assert only_error(unknown).param == "previous_item_id"
    assert only_error(rig.send(RetrieveItem(item_id="c"))).code == "item_retrieve_invalid_item_id"
    assert only_error(rig.send(DeleteItem(item_id="c"))).code == "item_delete_invalid_item_id"


def test_sound_inside_an_item_is_heard() -> None:
    rig = Rig()
    rig.send(TRANSCRIBE)
    part = AudioPart(data=b"\x00\x10" * 24_000)
    item = Item(item_id="s", role="user", content=(part,))
    said = rig.send(CreateItem(item=item))
    assert names(said)[:2] == ["ItemAdded", "ItemDone"]
    assert rig.of(TranscriptCompleted)[0].text == "hello there"
    rig.send(RetrieveItem(item_id="s"))
    retrieved = rig.of(ItemRetrieved)[0].item
    assert retrieved.content == (AudioPart(transcript="hello there"),)


def test_update_is_refused_as_a_whole() -> None:
    rig = Rig()
    rig.send(MANUAL)
    rig.speak(0.5)
    changes = {"instructions": "x", "input_format": {"encoding": "pcmu", "rate_hz": 8000}}
    error = only_error(rig.send(UpdateSession(changes=changes, event_id="u")))
    assert error.param == "session.audio.input.format"
    assert rig.session.config.instructions != "x"


def test_turn_detection_merges_and_needs_a_type_when_off() -> None:
    rig = Rig()
    rig.send(UpdateSession(changes={"turn_detection": {"silence_duration_ms": 900}}))
    rig.send(UpdateSession(changes={"turn_detection": {"threshold": 0.8}}))
    detection = rig.session.config.turn_detection
    assert detection is not None
    assert (detection.threshold, detection.silence_duration_ms) == (0.8, 900)
    rig.send(MANUAL)
    error = only_error(rig.send(UpdateSession(changes={"turn_detection": {"threshold": 0.4}})))
    assert error.code == "missing_required_parameter"


def test_engine_loss_fails_the_response_and_the_next_turn_works() -> None:
    rig = Rig()
    rig.engine.held = True
    rig.send(text_item("Hello"), CreateResponse())
    rig.do(rig.engine.lose)
    done = rig.of(ResponseDone)[0].response
    assert done.status == "failed"
    assert done.error is not None
    assert done.error[0] == "engine_lost"
    rig.engine.held = False
    rig.send(TRANSCRIBE)
    rig.speak(1.0)
    rig.silence(1.0)  # nobody is there to hear it
    assert not rig.of(TranscriptCompleted)
    rig.engine.info = Rig().engine.info
    rig.wait(1.0)
    assert rig.of(TranscriptCompleted)[0].text == "hello there"
    assert rig.of(ResponseDone)[-1].response.status == "completed"
    assert rig.prompt_text().count("Hello") == 2


def test_engine_loss_in_mid_speech_loses_no_sound() -> None:
    rig = Rig()
    rig.send(TRANSCRIBE)
    rig.speak(2.0)
    rig.do(rig.engine.lose)
    rig.engine.info = Rig().engine.info
    rig.wait(1.0)
    rig.silence(1.0)
    assert rig.of(TranscriptCompleted)[0].seconds >= 2.0
    spans = [r for r in rig.asked if isinstance(r, OpenSpan)]
    replayed = [r for r in rig.asked if getattr(r, "sequence_id", 0) == spans[-1].sequence_id]
    assert sum(r.shape[0] for r in replayed if isinstance(r, AppendMedia)) >= 2 * 16_000


def test_response_waits_for_a_full_engine_and_then_gives_up() -> None:
    rig = Rig()
    rig.engine.busy = True
    rig.send(text_item("Hello"), CreateResponse())
    assert not rig.of(ResponseDone)
    for _ in range(130):
        rig.wait(0.6)
    assert rig.of(ResponseDone)[0].response.status == "failed"


def test_long_conversation_is_cut_at_item_borders_with_events() -> None:
    rig = Rig(settings=SessionSettings(max_output_tokens=64))
    for i in range(12):
        rig.send(text_item(f"{i:02}" + "x" * 300, f"i{i}"))
    rig.send(CreateResponse())
    assert [e.item_id for e in rig.of(ItemDeleted)][:2] == ["i0", "i1"]
    assert rig.of(ResponseDone)[0].response.status == "completed"


def test_disabled_truncation_refuses_instead() -> None:
    rig = Rig(settings=SessionSettings(max_output_tokens=64))
    rig.send(UpdateSession(changes={"truncation": "disabled"}))
    for i in range(12):
        rig.send(text_item(f"{i:02}" + "x" * 300, f"i{i}"))
    rig.send(CreateResponse())
    assert not rig.of(ItemDeleted)
    response = rig.of(ResponseDone)[0].response
    assert response.error is not None
    assert response.error[0] == "context_length_exceeded"


@pytest.mark.parametrize("length", [5_000, 10_000_000])
def test_item_that_no_prompt_can_hold_is_refused(length: int) -> None:
    error = only_error(Rig().send(text_item("x" * length)))
    assert (error.code, error.param) == ("invalid_value", "item.content")


def test_turn_of_endless_sound_is_cut_and_answered() -> None:
    rig = Rig(settings=SessionSettings(max_turn_s=2.0))
    rig.speak(5.0, packet_ms=100)
    assert len(rig.of(AudioCommitted)) == 2


def test_endless_manual_sound_is_refused_not_lost_silently() -> None:
    rig = Rig(settings=SessionSettings(max_turn_s=1.0))
    rig.send(MANUAL)
    rig.speak(1.5, packet_ms=100)
    errors = rig.of(ErrorRaised)
    assert errors
    assert {e.code for e in errors} == {"buffer_overflow"}
    rig.send(CommitAudio())
    assert rig.of(AudioCommitted)


def test_sound_that_nobody_takes_stops_being_read_and_then_overflows() -> None:
    rig = Rig(auto=False, settings=SessionSettings(max_buffered_s=2.0))
    rig.send(MANUAL)
    rig.speak(1.2, packet_ms=100)
    assert not rig.session.wants_input()
    rig.speak(1.5, packet_ms=100)
    assert rig.of(ErrorRaised)[0].code == "buffer_overflow"


def test_an_hour_of_silence_costs_the_engine_nothing() -> None:
    rig = Rig()
    rig.silence(3600.0, packet_ms=1000)
    assert rig.asked == []
    assert rig.session.wants_input()


def test_session_expires_and_idles() -> None:
    rig = Rig(settings=SessionSettings(max_session_s=100, idle_timeout_s=50))
    rig.wait(40)
    rig.send(text_item("still here"))
    rig.wait(40)
    assert not rig.session.closed
    rig.wait(30)
    assert rig.session.closed
    assert rig.of(ErrorRaised)[-1].code == "session_expired"
    idle = Rig(settings=SessionSettings(max_session_s=100, idle_timeout_s=50))
    idle.wait(51)
    assert idle.of(ErrorRaised)[-1].code == "session_idle"


def test_a_peer_that_leaves_gives_everything_back() -> None:
    rig = Rig()
    rig.engine.held = True
    rig.send(text_item("Hello"), CreateResponse(), CreateResponse(out_of_band=True))
    rig.session.transport_closed(rig.now)
    rig._settle()
    assert rig.engine.sequences == {}


def test_generation_is_bounded_by_the_default() -> None:
    rig = Rig()
    rig.send(text_item("Hello"), CreateResponse())
    generate = next(r for r in rig.asked if isinstance(r, Generate))
    assert generate.sampling.max_tokens == 512
    rig.send(CreateResponse(max_output_tokens=2))
    done = rig.of(ResponseDone)[-1].response
    assert (done.status, done.reason) == ("incomplete", "max_output_tokens")
    rig.send(UpdateSession(changes={"max_output_tokens": 2}), CreateResponse())
    assert rig.of(ResponseDone)[-1].response.status == "incomplete"
    rig.send(CreateResponse(max_output_tokens=None))
    assert rig.of(ResponseDone)[-1].response.status == "completed"


def test_odd_bytes_are_carried_over() -> None:
    rig = Rig()
    rig.send(MANUAL)
    pcm = b"\x00\x10" * 12_000
    rig.send(AppendAudio(data=pcm[:4801]), AppendAudio(data=pcm[4801:]))
    assert not rig.of(ErrorRaised)
    rig.send(CommitAudio())
    assert rig.of(AudioCommitted)


def heard(span: OpenSpan, text: str, pending: str) -> Heard:
    return Heard(
        sequence_id=span.sequence_id,
        span_id=span.span_id,
        text=text,
        pending=pending,
        words=(),
        token_ids=(),
    )
