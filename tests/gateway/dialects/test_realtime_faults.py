"""What a client is told about an event that doesn't fit: code, dotted path, and what would."""

import json
from typing import Any

import pytest

from sensorium.gateway.client_events import Malformed
from sensorium.gateway.dialects.realtime import RealtimeDialect
from sensorium.gateway.errors import GatewayError


def refuse(event: dict[str, Any]) -> GatewayError:
    decoded = RealtimeDialect(live_transcripts=False).decode(
        json.dumps({**event, "event_id": "mine"})
    )
    assert isinstance(decoded, Malformed)
    assert decoded.event_id == "mine"
    return decoded.error


def update(**session: Any) -> dict[str, Any]:
    return {"type": "session.update", "session": {"type": "realtime", **session}}


def turn_detection(**keys: Any) -> dict[str, Any]:
    return update(audio={"input": {"turn_detection": keys}})


def respond(**response: Any) -> dict[str, Any]:
    return {"type": "response.create", "response": response}


def create(**item: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": item}


DETECTION = "session.audio.input.turn_detection"


@pytest.mark.parametrize(
    ("event", "param", "right"),
    [
        ({"type": "session.update"}, "session", "an object"),
        ({"type": "session.update", "session": {}}, "session.type", "'realtime'"),
        ({"type": "input_audio_buffer.append"}, "audio", "a string"),
        (create(), "item.type", "'message'"),
        (create(type="message", role="user"), "item.content", "at most 64"),
        (create(type="message", role="user", content=[{}]), "item.content[0].type", "a string"),
    ],
)
def test_a_missing_key_is_named(event: dict[str, Any], param: str, right: str) -> None:
    error = refuse(event)
    assert (error.code, error.param) == ("missing_required_parameter", param)
    assert param in error.message
    assert right in error.message.split("; expected ")[1]


@pytest.mark.parametrize(
    ("event", "param", "known"),
    [
        (update(temperature=0.8), "session.temperature", "max_output_tokens"),
        (update(voice="alloy"), "session.voice", "audio"),
        (turn_detection(treshold=0.5), f"{DETECTION}.treshold", "threshold"),
        (respond(modalities=["text"]), "response.modalities", "output_modalities"),
        ({"type": "response.cancel", "id": "r"}, "id", "response_id"),
        (
            create(type="message", role="user", content=[{"type": "input_text", "txt": ""}]),
            "item.content[0].txt",
            "text",
        ),
    ],
)
def test_an_unknown_key_is_answered_with_the_known_ones(
    event: dict[str, Any], param: str, known: str
) -> None:
    error = refuse(event)
    assert (error.code, error.param) == ("unknown_parameter", param)
    assert known in error.message.split("; expected one of ")[1].rstrip(".").split(", ")


@pytest.mark.parametrize(
    ("event", "param", "right"),
    [
        (turn_detection(threshold=1.01), f"{DETECTION}.threshold", "a number from 0 to 1 or null"),
        (turn_detection(threshold="x"), f"{DETECTION}.threshold", "a number from 0 to 1 or null"),
        (
            turn_detection(silence_duration_ms=-1),
            f"{DETECTION}.silence_duration_ms",
            "an integer from 0 to 60000 or null",
        ),
        (
            turn_detection(type="vad"),
            f"{DETECTION}.type",
            "'semantic_vad', 'server_vad' or null",
        ),
        (turn_detection(create_response=1), f"{DETECTION}.create_response", "true, false or null"),
        (
            update(max_output_tokens=4097),
            "session.max_output_tokens",
            "an integer from 1 to 4096, 'inf' or null",
        ),
        (update(output_modalities=["video"]), "session.output_modalities[0]", "'audio' or 'text'"),
        (
            update(instructions="x" * (256 * 1024 + 1)),
            "session.instructions",
            "a string of at most 262144 characters or null",
        ),
        (
            create(type="message", role="user", content=[], id="x" * 33),
            "item.id",
            "a string of at most 32 characters or null",
        ),
        (create(type="thought"), "item.type", "'message' or 'item_reference'"),
        (
            create(type="message", role="user", content=[{"type": "input_text", "text": ""}] * 65),
            "item.content",
            "an array of at most 64 elements",
        ),
        (
            respond(metadata={"key": "x" * 513}),
            "response.metadata",
            "a string of at most 512 characters",
        ),
        (
            respond(metadata={"k" * 65: ""}),
            "response.metadata",
            "a string of at most 64 characters",
        ),
        (
            respond(metadata={str(i): "" for i in range(17)}),
            "response.metadata",
            "an object of at most 16 pairs or null",
        ),
        (respond(metadata={"key": 1}), "response.metadata", "a string of at most 512 characters"),
    ],
)
def test_a_wrong_value_is_answered_with_what_is_allowed(
    event: dict[str, Any], param: str, right: str
) -> None:
    error = refuse(event)
    assert (error.code, error.param) == ("invalid_value", param)
    assert error.message.endswith(f"; expected {right}.")


def test_the_wrong_value_is_quoted_but_never_at_length() -> None:
    assert ": 'loud'; " in refuse(turn_detection(eagerness="loud")).message
    assert len(refuse(turn_detection(eagerness="loud" * 100_000)).message) < 400
    error = refuse(update(**{"loud" * 100_000: 1}))
    assert len(error.message) < 600
    assert len(error.param or "") < 200


def test_a_number_too_long_to_read_is_refused() -> None:
    event = json.dumps(update(prompt={"n": 0})).replace("0", "9" * 100_000)
    decoded = RealtimeDialect(live_transcripts=False).decode(event)
    assert isinstance(decoded, Malformed)
    assert (decoded.error.code, decoded.error.param) == ("invalid_value", "session.prompt")


def test_a_key_that_looks_like_a_path_does_no_harm() -> None:
    error = refuse(update(**{"x` - at `$.audio": 1}))
    assert error.code == "unknown_parameter"
