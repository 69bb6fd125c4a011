"""What goes out, against known-good payloads and the `openai` package's own types."""

import json
from typing import Any, get_args

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import BaseModel, TypeAdapter

from sensorium.gateway.client_events import CreateItem
from sensorium.gateway.configuration import AudioFormat, SessionConfig, Transcription, TurnDetection
from sensorium.gateway.dialects.realtime import RealtimeDialect
from sensorium.gateway.items import AudioPart, Item, PicturePart, TextPart, VideoPart
from sensorium.gateway.server_events import (
    AudioCleared,
    AudioCommitted,
    ChannelDelta,
    ChannelDone,
    ErrorRaised,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    OutputItemAdded,
    OutputItemDone,
    OutputPartAdded,
    OutputPartDone,
    OutputTextDelta,
    OutputTextDone,
    Response,
    ResponseCreated,
    ResponseDone,
    ResponseUsage,
    ServerEvent,
    SessionCreated,
    SessionUpdated,
    SpeechStarted,
    SpeechStopped,
    TranscriptCompleted,
    TranscriptDelta,
    TranscriptFailed,
    TranscriptPartial,
)

SPOKEN = Item(item_id="item_u1", role="user", content=(AudioPart(),))
HEARD = Item(item_id="item_u1", role="user", content=(AudioPart(transcript="hello"),))
TYPED = Item(item_id="item_t1", role="user", content=(TextPart(text="Hi?"),))
SYSTEM = Item(item_id="item_s1", role="system", content=(TextPart(text="Be brief."),))
ANSWER = Item(item_id="item_m1", role="assistant", content=(TextPart(text="Hi"),))
OPENING = Item(item_id="item_m1", role="assistant", content=(), status="in_progress")
CUT_OFF = Item(
    item_id="item_m1", role="assistant", content=(TextPart(text="H"),), status="incomplete"
)
SHOWN = Item(
    item_id="item_p1",
    role="user",
    content=(PicturePart(data=b"PIXELS", detail="low"), VideoPart(data=b"PIXELS")),
)
USAGE = ResponseUsage(
    input_text_tokens=3,
    input_audio_tokens=4,
    input_image_tokens=6,
    cached_tokens=5,
    output_tokens=2,
)
BUSY = Response(response_id="resp_1", status="in_progress", conversation_id="conv_1")


def session(config: SessionConfig) -> SessionCreated:
    return SessionCreated(
        session_id="sess_a1", model="demo", expires_at=1_796_000_000, config=config
    )


def done(**fields: Any) -> ResponseDone:
    fields = {"response_id": "resp_1", "conversation_id": "conv_1", **fields}
    return ResponseDone(response=Response(**fields))


EVENTS: list[ServerEvent] = [
    session(SessionConfig()),
    session(SessionConfig(turn_detection=None, noise_reduction="far_field", max_output_tokens=9)),
    SessionUpdated(
        session_id="sess_a1",
        model="demo",
        expires_at=1_796_000_000,
        config=SessionConfig(
            turn_detection=TurnDetection(kind="semantic_vad", eagerness="low"),
            transcription=Transcription(model="whisper-1", language="en", prompt="Ada"),
            input_format=AudioFormat(encoding="pcmu", rate_hz=8_000),
            truncation="disabled",
            extras={
                "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
                "tool_choice": {"type": "function", "name": "f"},
                "parallel_tool_calls": False,
                "reasoning": {"effort": "low"},
                "tracing": {"workflow_name": "w"},
                "prompt": {"id": "pmpt_1"},
                "include": ["item.input_audio_transcription.logprobs"],
                "truncation": {"type": "retention_ratio", "retention_ratio": 0.5},
                "audio.output.voice": {"id": "voice_1"},
                "audio.output.format": {"type": "audio/pcma"},
            },
        ),
    ),
    SpeechStarted(item_id="item_u1", audio_start_ms=200),
    SpeechStopped(item_id="item_u1", audio_end_ms=1500),
    AudioCommitted(item_id="item_u1", previous_item_id=None),
    AudioCommitted(item_id="item_u2", previous_item_id="item_u1"),
    AudioCleared(),
    ItemAdded(item=SPOKEN, previous_item_id=None),
    ItemDone(item=HEARD, previous_item_id="item_s1"),
    ItemAdded(item=SYSTEM, previous_item_id=None),
    ItemAdded(item=SHOWN, previous_item_id=None),
    ItemRetrieved(item=TYPED),
    ItemDeleted(item_id="item_u1"),
    TranscriptDelta(item_id="item_u1", text="hel"),
    TranscriptPartial(item_id="item_u1", text="lo"),
    TranscriptCompleted(item_id="item_u1", text="hello", seconds=1.2),
    TranscriptFailed(item_id="item_u1", code="transcription_failed", message="ASR unavailable"),
    ResponseCreated(response=BUSY),
    OutputItemAdded(response_id="resp_1", output_index=0, item=OPENING),
    OutputPartAdded(response_id="resp_1", item_id="item_m1", output_index=0),
    OutputTextDelta(response_id="resp_1", item_id="item_m1", output_index=0, text="H"),
    ChannelDelta(response_id="resp_1", channel="self", text="Hm"),
    ChannelDone(response_id="resp_1", channel="self", end="eom"),
    OutputTextDone(response_id="resp_1", item_id="item_m1", output_index=0, text="Hi"),
    OutputPartDone(response_id="resp_1", item_id="item_m1", output_index=0, text="Hi"),
    OutputItemDone(response_id="resp_1", output_index=0, item=ANSWER),
    done(status="completed", output=(ANSWER,), usage=USAGE, metadata={"topic": "x"}),
    done(status="cancelled", output=(CUT_OFF,), reason="turn_detected", usage=USAGE),
    done(status="incomplete", reason="max_output_tokens", max_output_tokens=9, usage=USAGE),
    done(status="failed", conversation_id=None, error=("engine_failed", "The engine stopped.")),
    ErrorRaised(code="invalid_value", message="No.", param="session.type", event_id="mine"),
    ErrorRaised(code="internal_error", message="Ours.", is_ours=True, close_code=1011),
]
# In the protocol, and sent by the original service, but not in the package's types.
UNTYPED = {
    ".session.id",
    ".session.object",
    ".session.expires_at",
    ".response.status_details.error.message",
}
UNION: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)


def encode(*said: ServerEvent) -> list[dict[str, Any]]:
    dialect = RealtimeDialect(live_transcripts=True)
    return [json.loads(dialect.encode(event) or "") for event in said]


def unknown_keys(model: object, path: str = "") -> list[str]:
    """The keys anywhere inside `model` that its type doesn't declare."""
    match model:
        case BaseModel():
            extra = [f"{path}.{key}" for key in model.model_extra or {}]
            inner = [unknown_keys(value, f"{path}.{key}") for key, value in model]
            return extra + [key for keys in inner for key in keys]
        case list():
            return [key for each in model for key in unknown_keys(each, path)]
        case _:
            return []


def test_the_list_above_has_every_server_event() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(ServerEvent))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_the_openai_package_knows_every_event_and_key(event: ServerEvent) -> None:
    if isinstance(event, TranscriptPartial | ChannelDelta | ChannelDone):
        return  # ours
    [body] = encode(event)
    parsed = UNION.validate_python(body)
    assert parsed.type == body["type"]
    assert set(unknown_keys(parsed)) <= UNTYPED


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_nothing_echoes_sound_or_pictures(event: ServerEvent) -> None:
    [body] = encode(event)
    text = json.dumps(body, separators=(",", ":"))
    assert '"audio":"' not in text
    assert "PIXELS" not in text


def test_a_picture_is_shown_by_its_detail_and_a_video_as_a_picture() -> None:
    [body] = encode(ItemAdded(item=SHOWN, previous_item_id=None))
    assert body["item"]["content"] == [
        {"type": "input_image", "detail": "low"},
        {"type": "input_image", "detail": "auto"},
    ]


def test_channels_are_told_by_events_of_ours() -> None:
    said = encode(
        ChannelDelta(response_id="resp_1", channel="self", text="Hm"),
        ChannelDone(response_id="resp_1", channel="self", end="eom"),
    )
    where = {"response_id": "resp_1", "channel": "self"}
    assert said == [
        {"type": "response.channel.delta", "event_id": "evt_1", **where, "delta": "Hm"},
        {"type": "response.channel.done", "event_id": "evt_2", **where, "end": "eom"},
    ]


def test_known_good_session() -> None:
    config = SessionConfig(transcription=Transcription(model="gpt-4o-mini-transcribe"))
    assert encode(session(config)) == [
        {
            "type": "session.created",
            "event_id": "evt_1",
            "session": {
                "type": "realtime",
                "object": "realtime.session",
                "id": "sess_a1",
                "model": "demo",
                "expires_at": 1_796_000_000,
                "output_modalities": ["text"],
                "instructions": "",
                "tools": [],
                "tool_choice": "auto",
                "max_output_tokens": "inf",
                "truncation": "auto",
                "tracing": None,
                "prompt": None,
                "include": None,
                "audio": {
                    "input": {
                        "format": {"type": "audio/pcm", "rate": 24_000},
                        "transcription": {"model": "gpt-4o-mini-transcribe"},
                        "noise_reduction": None,
                        "turn_detection": {
                            "type": "server_vad",
                            "threshold": 0.5,
                            "prefix_padding_ms": 300,
                            "silence_duration_ms": 500,
                            "idle_timeout_ms": None,
                            "create_response": True,
                            "interrupt_response": True,
                        },
                    },
                    "output": {
                        "format": {"type": "audio/pcm", "rate": 24_000},
                        "voice": "alloy",
                        "speed": 1.0,
                    },
                },
            },
        }
    ]


KNOWN_GOOD: list[tuple[ServerEvent, dict[str, Any]]] = [
    (
        ItemAdded(item=SPOKEN, previous_item_id=None),
        {
            "type": "conversation.item.added",
            "previous_item_id": None,
            "item": {
                "id": "item_u1",
                "object": "realtime.item",
                "type": "message",
                "role": "user",
                "status": "completed",
                "content": [{"type": "input_audio", "transcript": None}],
            },
        },
    ),
    (
        TranscriptCompleted(item_id="item_u1", text="hello", seconds=1.2),
        {
            "type": "conversation.item.input_audio_transcription.completed",
            "item_id": "item_u1",
            "content_index": 0,
            "transcript": "hello",
            "usage": {"type": "duration", "seconds": 1.2},
        },
    ),
    (
        TranscriptFailed(item_id="item_u1", code="transcription_failed", message="ASR unavailable"),
        {
            "type": "conversation.item.input_audio_transcription.failed",
            "item_id": "item_u1",
            "content_index": 0,
            "error": {
                "type": "server_error",
                "code": "transcription_failed",
                "message": "ASR unavailable",
            },
        },
    ),
    (
        OutputPartAdded(response_id="resp_1", item_id="item_m1", output_index=0),
        {
            "type": "response.content_part.added",
            "response_id": "resp_1",
            "item_id": "item_m1",
            "output_index": 0,
            "content_index": 0,
            "part": {"type": "text", "text": ""},
        },
    ),
    (
        OutputItemDone(response_id="resp_1", output_index=0, item=ANSWER),
        {
            "type": "response.output_item.done",
            "response_id": "resp_1",
            "output_index": 0,
            "item": {
                "id": "item_m1",
                "object": "realtime.item",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hi"}],
            },
        },
    ),
    (
        done(status="cancelled", reason="turn_detected", usage=USAGE),
        {
            "type": "response.done",
            "response": {
                "object": "realtime.response",
                "id": "resp_1",
                "status": "cancelled",
                "status_details": {"type": "cancelled", "reason": "turn_detected"},
                "output": [],
                "conversation_id": "conv_1",
                "output_modalities": ["text"],
                "max_output_tokens": "inf",
                "audio": {
                    "output": {"format": {"type": "audio/pcm", "rate": 24_000}, "voice": "alloy"}
                },
                "metadata": None,
                "usage": {
                    "total_tokens": 15,
                    "input_tokens": 13,
                    "output_tokens": 2,
                    "input_token_details": {
                        "text_tokens": 3,
                        "audio_tokens": 4,
                        "image_tokens": 6,
                        "cached_tokens": 5,
                        "cached_tokens_details": {
                            "text_tokens": 3,
                            "audio_tokens": 2,
                            "image_tokens": 0,
                        },
                    },
                    "output_token_details": {"text_tokens": 2, "audio_tokens": 0},
                },
            },
        },
    ),
    (
        ErrorRaised(
            code="response_cancel_not_active",
            message="Cancellation failed: no active response found",
            event_id="cli_7",
        ),
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "code": "response_cancel_not_active",
                "message": "Cancellation failed: no active response found",
                "param": None,
                "event_id": "cli_7",
            },
        },
    ),
]


@pytest.mark.parametrize(("event", "body"), KNOWN_GOOD, ids=lambda value: type(value).__name__)
def test_known_good_payloads(event: ServerEvent, body: dict[str, Any]) -> None:
    assert encode(event) == [{**body, "event_id": "evt_1"}]


def test_a_failed_response_says_why() -> None:
    [body] = encode(done(status="failed", error=("engine_failed", "The engine stopped.")))
    assert body["response"]["status_details"] == {
        "type": "failed",
        "error": {
            "type": "server_error",
            "code": "engine_failed",
            "message": "The engine stopped.",
        },
    }
    assert body["response"]["usage"] is None


def test_our_own_faults_are_server_errors() -> None:
    [body] = encode(ErrorRaised(code="internal_error", message="Ours.", is_ours=True))
    assert body["error"]["type"] == "server_error"


@pytest.mark.parametrize(
    ("detection", "keys"),
    [
        (
            TurnDetection(),
            {
                "threshold",
                "prefix_padding_ms",
                "silence_duration_ms",
                "idle_timeout_ms",
            },
        ),
        (TurnDetection(kind="semantic_vad"), {"eagerness"}),
    ],
)
def test_turn_detection_shows_only_its_own_keys(detection: TurnDetection, keys: set[str]) -> None:
    [body] = encode(session(SessionConfig(turn_detection=detection)))
    shown = body["session"]["audio"]["input"]["turn_detection"]
    assert set(shown) == keys | {"type", "create_response", "interrupt_response"}
    assert shown["type"] == detection.kind


def test_extras_that_were_reset_show_the_default_again() -> None:
    names = ["tools", "tool_choice", "truncation", "reasoning", "parallel_tool_calls"]
    names += [f"audio.output.{name}" for name in ("voice", "format", "speed")]
    extras = dict.fromkeys(names)
    [reset] = encode(session(SessionConfig(extras=extras)))
    [fresh] = encode(session(SessionConfig()))
    assert reset == fresh


def test_a_response_shows_the_sessions_voice() -> None:
    config = SessionConfig(extras={"audio.output.voice": "marin"})
    _, created = encode(session(config), ResponseCreated(response=BUSY))
    assert created["response"]["audio"]["output"]["voice"] == "marin"


@pytest.mark.parametrize("item", [TYPED, SYSTEM, ANSWER, HEARD, CUT_OFF], ids=lambda i: i.item_id)
def test_an_item_as_shown_can_be_sent_back(item: Item) -> None:
    [shown] = encode(ItemRetrieved(item=item))
    event = {"type": "conversation.item.create", "item": shown["item"]}
    decoded = RealtimeDialect(live_transcripts=False).decode(json.dumps(event))
    assert decoded == CreateItem(item=item)
