"""`/v1/realtime`: who gets a session, and how the others are refused."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from app_rig import fake_engine, http_client, make_app, services_of, websocket_client
from fakes import SEEING_MODEL
from media_files import picture_file
from PIL import Image
from starlette.testclient import WebSocketTestSession
from starlette.websockets import WebSocketDisconnect
from tiny_text import tiny_muse_prompt, tiny_muse_tokenizer

from sensorium.gateway.settings import GatewaySettings, Settings

URL = "ws://127.0.0.1/v1/realtime"
ITEM = {
    "type": "conversation.item.create",
    "item": {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hi"}],
    },
}


def refusal(socket: WebSocketTestSession) -> tuple[dict[str, Any], int, str]:
    """Return the one error event, the close code and its reason."""
    event = socket.receive_json()
    assert event["type"] == "error"
    with pytest.raises(WebSocketDisconnect) as closed:
        socket.receive_json()
    return event["error"], closed.value.code, closed.value.reason


@contextmanager
def session(query: str = "?model=default", **options: Any) -> Iterator[WebSocketTestSession]:
    app = options.pop("app", None) or make_app(api_key=options.pop("api_key", None))
    with (
        websocket_client(app, peer=options.pop("peer", "127.0.0.1")) as client,
        client.websocket_connect(URL + query, **options) as socket,
    ):
        yield socket


@pytest.mark.parametrize("model", ["default", "fake"])
def test_session_answers_text(model: str) -> None:
    engine = fake_engine(reply="Hello.")
    with session(f"?model={model}", app=make_app(engine)) as socket:
        assert socket.receive_json()["type"] == "session.created"
        socket.send_json(ITEM)
        socket.send_json({"type": "response.create"})
        deltas = ""
        while (event := socket.receive_json())["type"] != "response.done":
            deltas += event.get("delta", "")
    assert event["response"]["status"] == "completed"
    assert deltas == "Hello."


@pytest.mark.parametrize(
    ("query", "is_told"),
    [("", False), ("&channels=false", False), ("&channels=true", True), ("&channels=1", True)],
)
def test_what_the_model_writes_to_itself_is_told_who_asks_for_it(query: str, is_told: bool) -> None:
    reply = " to=self<|message|>Hm, hm.<|eom|><|start|>assistant to=user<|message|>Hello."
    engine = fake_engine(reply=reply, encode=tiny_muse_tokenizer().encode_markup)
    app = make_app(engine, prompt=tiny_muse_prompt())
    with session(f"?model=default{query}", app=app) as socket:
        socket.send_json(ITEM)
        socket.send_json({"type": "response.create"})
        events = [socket.receive_json()]
        while events[-1]["type"] != "response.done":
            events.append(socket.receive_json())
    thought = "".join(e["delta"] for e in events if e["type"] == "response.channel.delta")
    ends = [(e["channel"], e["end"]) for e in events if e["type"] == "response.channel.done"]
    assert (thought, ends[:1]) == (("Hm, hm.", [("self", "eom")]) if is_told else ("", []))
    assert [e["text"] for e in events if e["type"] == "response.output_text.done"] == ["Hello."]


@pytest.mark.parametrize(
    ("query", "headers", "code"),
    [
        ("", {}, "missing_model"),
        ("?model=", {}, "missing_model"),
        ("?model=gpt-realtime", {}, "invalid_model"),
        ("?intent=transcription", {}, "unsupported_intent"),
        ("?call_id=rtc_1", {}, "unsupported_call"),
        ("?model=default", {"OpenAI-Beta": "realtime=v1"}, "beta_api_shape_disabled"),
    ],
)
def test_wishes_that_cannot_be_met_close_with_4000(
    query: str, headers: dict[str, str], code: str
) -> None:
    with session(query, headers=headers) as socket:
        error, close_code, reason = refusal(socket)
    assert (error["code"], error["type"]) == (code, "invalid_request_error")
    assert (close_code, reason) == (4000, f"invalid_request_error.{code}")


def test_unknown_model_names_the_known_ones() -> None:
    with session("?model=gpt-realtime") as socket:
        error, _, _ = refusal(socket)
    assert "default and fake" in error["message"]


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Authorization": "Bearer s3cret"}},
        {"headers": {"api-key": "s3cret"}},
        {"subprotocols": ["realtime", "openai-insecure-api-key.s3cret"]},
    ],
)
def test_key_is_taken_from_three_places(options: dict[str, Any]) -> None:
    with session(api_key="s3cret", peer="203.0.113.9", **options) as socket:
        assert socket.receive_json()["type"] == "session.created"


@pytest.mark.parametrize("key", [None, "wrong"])
def test_bad_key_closes_with_3000_and_is_not_repeated(
    key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with session(api_key="s3cret", headers=headers) as socket:
        error, close_code, reason = refusal(socket)
    assert (error["code"], close_code) == ("invalid_api_key", 3000)
    assert reason == "invalid_request_error.invalid_api_key"
    assert "s3cret" not in f"{error}{caplog.text}"
    assert not key or f"Bearer {key}" not in f"{error}{caplog.text}"


def test_subprotocol_is_selected_only_if_offered() -> None:
    offered = ["realtime", "openai-insecure-api-key.k"]
    with session(subprotocols=offered) as socket:
        assert socket.accepted_subprotocol == "realtime"
    with session(subprotocols=["other"]) as socket:
        assert socket.accepted_subprotocol is None


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"Origin": "https://evil.com"}},
        {"headers": {"Host": "evil.com"}},
        {"peer": "203.0.113.9"},
    ],
)
def test_strangers_without_a_key_get_no_upgrade(options: dict[str, Any]) -> None:
    with pytest.raises(WebSocketDisconnect), session(**options):
        pass


def test_page_of_this_machine_is_served() -> None:
    with session(headers={"Origin": "http://127.0.0.1:8000"}) as socket:
        assert socket.receive_json()["type"] == "session.created"


def test_full_server_refuses_with_1013_and_keeps_whom_it_has() -> None:
    app = make_app(settings=Settings(gateway=GatewaySettings(max_sessions=1)))
    with (
        websocket_client(app) as client,
        client.websocket_connect(f"{URL}?model=default") as first,
    ):
        first.receive_json()
        with client.websocket_connect(f"{URL}?model=default") as second:
            error, close_code, reason = refusal(second)
        first.send_json(ITEM)
        assert first.receive_json()["type"] == "conversation.item.added"
    assert (error["code"], error["type"]) == ("server_busy", "server_error")
    assert (close_code, reason) == (1013, "server_busy")
    assert "try again later" in error["message"]


def test_starting_engine_refuses_with_1013() -> None:
    engine = fake_engine()
    engine.info = None
    with session(app=make_app(engine)) as socket:
        _, close_code, _ = refusal(socket)
    assert close_code == 1013


def test_stopping_server_refuses_with_1012() -> None:
    app = make_app()
    services_of(app).stopping = True
    with session(app=app) as socket:
        error, close_code, _ = refusal(socket)
    assert (error["code"], close_code) == ("server_shutting_down", 1012)


async def test_plain_http_is_told_to_upgrade() -> None:
    async with http_client(make_app()) as client:
        response = await client.get("/v1/realtime")
    assert response.status_code == 426
    assert response.headers["upgrade"] == "websocket"


@pytest.mark.parametrize("query", ["", "&video=false"])
def test_frames_are_an_unknown_event_to_who_did_not_ask_for_video(query: str) -> None:
    with session(f"?model=default{query}") as socket:
        assert "interleave" not in socket.receive_json()["session"]
        socket.send_json({"type": "input_image_buffer.append", "image": "AAAA"})
        error = socket.receive_json()["error"]
        assert (error["code"], error["param"]) == ("invalid_value", "type")
        assert "input_image_buffer.append'; expected" in error["message"]
        socket.send_json(
            {"type": "session.update", "session": {"type": "realtime", "interleave": 2}}
        )
        error = socket.receive_json()["error"]
        assert (error["code"], error["param"]) == ("unknown_parameter", "session.interleave")
        assert "interleave'; expected one of type, object, id," in error["message"]


def test_frames_are_taken_from_who_asked_for_video() -> None:
    with session("?model=default&video=true") as socket:
        assert socket.receive_json()["session"]["interleave"] is None
        socket.send_json(
            {"type": "session.update", "session": {"type": "realtime", "interleave": 2}}
        )
        assert socket.receive_json()["session"]["interleave"] == 2
        socket.send_json({"type": "input_image_buffer.append", "image": "AAAA", "event_id": "e"})
        error = socket.receive_json()["error"]
        assert (error["code"], error["event_id"]) == ("unsupported_content", "e")


def test_frames_of_a_camera_become_parts_of_a_turn() -> None:
    engine = fake_engine()
    engine.info = SEEING_MODEL
    session_keys = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    sound = base64.b64encode(bytes(2 * 24_000)).decode()
    frames = [picture_file(Image.new("RGB", (90, 60), color), "jpeg") for color in ("red", "blue")]
    with session("?model=default&video=true", app=make_app(engine)) as socket:
        socket.send_json({"type": "session.update", "session": session_keys})
        for frame in (*frames, b"no picture"):
            image = base64.b64encode(frame).decode()
            socket.send_json({"type": "input_image_buffer.append", "image": image})
            socket.send_json({"type": "input_audio_buffer.append", "audio": sound})
        socket.send_json({"type": "input_audio_buffer.commit"})
        told = []
        while (event := socket.receive_json())["type"] != "conversation.item.done":
            told.append(event)
    [error] = [event["error"] for event in told if event["type"] == "error"]
    assert (error["code"], error["param"]) == ("unsupported_format", "image")
    kinds = [part["type"] for part in event["item"]["content"]]
    assert kinds == ["input_image", "input_audio", "input_image"]
