"""A session's events followed by a client: words, answers, times, faults."""

import io
from typing import Any

import pytest

from sensorium.gateway.cli.dialogue import Dialogue
from sensorium.gateway.cli.screen import Screen

HEARD = "conversation.item.input_audio_transcription"
DETECTION = {"turn_detection": {"type": "server_vad", "silence_duration_ms": 500}}
CREATED = {"type": "session.created", "session": {"audio": {"input": DETECTION}}}
STARTED = {"type": "input_audio_buffer.speech_started", "item_id": "u", "audio_start_ms": 100}
STOPPED = {"type": "input_audio_buffer.speech_stopped", "item_id": "u", "audio_end_ms": 2500}
ANSWERING = {"type": "response.created", "response": {"status": "in_progress"}}
COMPLETED = {"type": f"{HEARD}.completed", "item_id": "u", "transcript": "Hello there."}


def done(status: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """Build the last event of a response."""
    return {"type": "response.done", "response": {"status": status, "status_details": details}}


def delta(text: str) -> dict[str, Any]:
    """Build a piece of an answer."""
    return {"type": "response.output_text.delta", "delta": text}


@pytest.fixture
def out() -> io.StringIO:
    """Return where the screen writes."""
    return io.StringIO()


@pytest.fixture
def dialogue(out: io.StringIO) -> Dialogue:
    """Return a dialogue whose session has begun."""
    dialogue = Dialogue(Screen(out))
    dialogue.receive(CREATED, 0.0)
    return dialogue


def test_spoken_turn_is_heard_answered_and_timed(dialogue: Dialogue, out: io.StringIO) -> None:
    dialogue.sound_began_at = 10.0
    dialogue.receive(STARTED, 10.2)
    dialogue.receive({"type": f"{HEARD}.delta", "item_id": "u", "delta": "Hello"}, 11.0)
    dialogue.receive({"type": f"{HEARD}.partial", "item_id": "u", "text": " their"}, 11.0)
    dialogue.receive(STOPPED, 12.6)
    for event in (COMPLETED, ANSWERING, delta("Hi"), delta("!"), done("completed")):
        assert not dialogue.is_idle
        dialogue.receive(event, 12.75)
    assert dialogue.is_idle
    assert dialogue.num_answers == 1
    assert out.getvalue().splitlines() == [
        "you  Hello",
        "you  Hello (their)",
        "you  Hello there.",
        "model  Hi!",
        "first token 750 ms after the end of speech, 500 ms of them the silence that ends a turn",
    ]


def test_typed_question_is_timed_from_its_sending(dialogue: Dialogue, out: io.StringIO) -> None:
    dialogue.ask("Hi", 5.0)
    assert not dialogue.is_idle
    for event in (ANSWERING, delta("Hello"), done("completed")):
        dialogue.receive(event, 5.1)
    assert "first token 100 ms after the question" in out.getvalue()


def test_transcript_after_the_answer_is_waited_for(dialogue: Dialogue) -> None:
    for event in (STARTED, STOPPED, ANSWERING, delta("Hi"), done("completed")):
        dialogue.receive(event, 1.0)
    assert not dialogue.is_idle
    dialogue.receive(COMPLETED, 1.1)
    assert dialogue.is_idle


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "error": {"message": "bad thing"}},
        {"type": f"{HEARD}.failed", "item_id": "u", "error": {"message": "bad thing"}},
        done("failed", {"error": {"message": "bad thing"}}),
    ],
)
def test_faults_are_shown_and_kept(
    dialogue: Dialogue, out: io.StringIO, event: dict[str, Any]
) -> None:
    dialogue.receive(event, 1.0)
    assert dialogue.problems == ["bad thing"]
    assert "bad thing" in out.getvalue()


def test_interrupted_answer_says_why(dialogue: Dialogue, out: io.StringIO) -> None:
    for event in (ANSWERING, delta("Well"), done("cancelled", {"reason": "turn_detected"})):
        dialogue.receive(event, 1.0)
    assert "(cancelled: turn_detected)" in out.getvalue()
    assert dialogue.problems == []
