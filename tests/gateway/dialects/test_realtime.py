"""The dialect as a transport uses it: frames in, events out, whatever the peer sends."""

import copy
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sensorium.gateway.client_events import ClearAudio, ClientEvent, Malformed, Nothing
from sensorium.gateway.dialects.realtime import RealtimeDialect
from sensorium.gateway.server_events import AudioCleared, ErrorRaised, TranscriptPartial

# Written from the clients' sources of these clients' newest versions against a server on loopback.
GOLDEN = Path(__file__).parents[2] / "golden" / "realtime_client_events.jsonl"
CORPUS: list[dict[str, Any]] = [
    json.loads(line)["event"] for line in GOLDEN.read_text(encoding="utf-8").splitlines()
]
CODES = {
    "invalid_json",
    "invalid_event",
    "invalid_value",
    "unknown_parameter",
    "missing_required_parameter",
    "unsupported_content",
    "unsupported_item",
    "unsupported_tool",
}


def decode(message: str | bytes) -> ClientEvent:
    return RealtimeDialect(live_transcripts=False).decode(message)


def fault(message: str | bytes) -> Malformed:
    event = decode(message)
    assert isinstance(event, Malformed)
    return event


@pytest.mark.parametrize("event", CORPUS, ids=lambda event: str(event["type"]))
def test_what_real_clients_send_is_accepted(event: dict[str, Any]) -> None:
    decoded = decode(json.dumps(event))
    assert not isinstance(decoded, Malformed), decoded
    assert decoded.event_id == event.get("event_id")


@pytest.mark.parametrize("message", ["", "{", "hello", '{"type":"response.create"} x', "\ud800"])
def test_text_that_is_not_json_is_refused(message: str) -> None:
    assert fault(message).error.code == "invalid_json"


@pytest.mark.parametrize("message", [b"", b'{"type":"response.create"}', "[]", "3", "{}"])
def test_frames_that_are_no_events_are_refused(message: str | bytes) -> None:
    assert fault(message).error.code == "invalid_event"


@pytest.mark.parametrize("kind", ["session.destroy", "", "x" * 5000])
def test_an_unknown_type_is_answered_with_the_known_ones(kind: str) -> None:
    malformed = fault(json.dumps({"type": kind, "event_id": "mine"}))
    assert (malformed.error.code, malformed.error.param) == ("invalid_value", "type")
    assert "input_audio_buffer.append" in malformed.error.message
    assert len(malformed.error.message) < 600
    assert malformed.event_id == "mine"


@pytest.mark.parametrize("event_id", ["x" * 513, 7, {}, ["a"]])
def test_a_bad_event_id_is_refused_and_not_repeated(event_id: object) -> None:
    malformed = fault(json.dumps({"type": "response.create", "event_id": event_id}))
    assert (malformed.error.code, malformed.error.param) == ("invalid_value", "event_id")
    assert malformed.event_id is None


def test_the_longest_event_id_is_kept() -> None:
    assert fault(json.dumps({"type": "?", "event_id": "x" * 512})).event_id == "x" * 512


def test_null_is_no_event_id() -> None:
    assert decode('{"type":"input_audio_buffer.clear","event_id":null}') == ClearAudio()


def test_clearing_output_sound_is_nothing_to_do() -> None:
    event = decode('{"type":"output_audio_buffer.clear","event_id":"e"}')
    assert event == Nothing(event_id="e")


@pytest.mark.parametrize("depth", [100, 900, 200_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_refused(depth: int, opening: str) -> None:
    event = '{"type":"session.update","session":{"type":"realtime","prompt":{"id":%s1%s}}}'
    closing = "]" if opening == "[" else "}"
    assert fault(event % (opening * depth, closing * depth)).error.code == "invalid_value"
    fault(opening * depth)


def test_a_fault_holds_no_traceback() -> None:
    assert fault('{"type":"input_audio_buffer.append","audio":"?"}').error.__traceback__ is None


def test_events_are_numbered_per_connection() -> None:
    dialect = RealtimeDialect(live_transcripts=False)
    ids = [json.loads(dialect.encode(AudioCleared()) or "")["event_id"] for _ in range(3)]
    assert ids == ["evt_1", "evt_2", "evt_3"]


def test_unsettled_words_are_shown_only_to_clients_that_asked() -> None:
    event = TranscriptPartial(item_id="item_1", text="to be or")
    assert RealtimeDialect(live_transcripts=False).encode(event) is None
    assert json.loads(RealtimeDialect(live_transcripts=True).encode(event) or "") == {
        "type": "conversation.item.input_audio_transcription.partial",
        "event_id": "evt_1",
        "item_id": "item_1",
        "content_index": 0,
        "text": "to be or",
    }


# --- whatever arrives ---------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values inside `value`."""
    match value:
        case dict():
            inner = [place for key, each in value.items() for place in places(each, (*path, key))]
        case list():
            inner = [place for i, each in enumerate(value) for place in places(each, (*path, i))]
        case _:
            inner = []
    return [path, *inner] if path else inner


@st.composite
def mutants(draw: st.DrawFn) -> dict[str, Any]:
    """A valid event with one to three values replaced, removed, or given a new neighbour."""
    event = copy.deepcopy(draw(st.sampled_from(CORPUS)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(event) or [("type",)]))
        parent: Any = event
        for step in place[:-1]:
            parent = parent[step]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                parent[place[-1]] = draw(JSON)
            case "remove" if len(event) > 1:
                del parent[place[-1]]
            case _ if isinstance(parent, dict):
                parent[draw(st.text(max_size=8))] = draw(JSON)
    return event


def check(message: str | bytes) -> ClientEvent:
    event = decode(message)
    assert isinstance(event, get_args(ClientEvent))
    if isinstance(event, Malformed):
        error = event.error
        assert error.code in CODES
        assert error.close_code is None
        assert error.message[-1] == "."
        assert len(error.message) < 1000
        raised = ErrorRaised(code=error.code, message=error.message, param=error.param)
        assert RealtimeDialect(live_transcripts=False).encode(raised)
    return event


@given(st.text() | st.binary() | JSON.map(json.dumps))
def test_anything_at_all_gives_an_event(message: str | bytes) -> None:
    check(message)


@settings(max_examples=200)
@given(mutants())
def test_a_mutated_event_gives_an_event_under_its_own_id(event: dict[str, Any]) -> None:
    decoded = check(json.dumps(event))
    event_id = event.get("event_id")
    is_valid = isinstance(event_id, str) and len(event_id) <= 512
    assert decoded.event_id == (event_id if is_valid else None)
