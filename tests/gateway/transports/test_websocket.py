"""The WebSocket transport: frames to events, slices, refusals, peers that are gone."""

from collections import deque
from typing import Any

import pytest
from starlette.types import Message
from starlette.websockets import WebSocket

from sensorium.gateway.client_events import AppendAudio, ClientEvent, CommitAudio
from sensorium.gateway.errors import CapacityError, PeerError
from sensorium.gateway.ports import TransportClosed
from sensorium.gateway.server_events import (
    AudioCleared,
    ErrorRaised,
    ServerEvent,
    TranscriptPartial,
)
from sensorium.gateway.transports.websocket import (
    SLICE_BYTES,
    WebSocketTransport,
    choose_subprotocol,
    clip_reason,
    refuse,
    subprotocol_key,
)


class TextDialect:
    """A frame of digits is that many bytes of sound; anything else is a commit."""

    def decode(self, message: str | bytes) -> ClientEvent:
        """Return the event."""
        text = message if isinstance(message, str) else message.decode()
        number = text.strip()
        return AppendAudio(data=bytes(int(number))) if number.isdecimal() else CommitAudio()

    def encode(self, event: ServerEvent) -> str | None:
        """Return the event's name."""
        return None if isinstance(event, TranscriptPartial) else type(event).__name__


class Wire:
    """An ASGI server's end of an accepted WebSocket."""

    def __init__(self, *frames: Message) -> None:
        self.frames = deque[Message]([{"type": "websocket.connect"}, *frames])
        self.sent: list[Message] = []
        self.gone = False

    async def receive(self) -> Message:
        """Return the next message."""
        return self.frames.popleft()

    async def send(self, message: Any) -> None:
        """Record a message; OSError once the peer is gone, as ASGI says."""
        if self.gone:
            raise OSError
        self.sent.append(dict(message))


async def opened(*frames: Message) -> tuple[Wire, WebSocketTransport]:
    wire = Wire(*frames)
    socket = WebSocket({"type": "websocket", "headers": []}, wire.receive, wire.send)
    await socket.accept()
    wire.sent.clear()
    return wire, WebSocketTransport(socket, TextDialect())


def text(content: str) -> Message:
    return {"type": "websocket.receive", "text": content}


GONE: Message = {"type": "websocket.disconnect", "code": 1006}


async def test_frames_become_events() -> None:
    _, transport = await opened(text("10"), {"type": "websocket.receive", "bytes": b"x"}, GONE)
    assert await transport.receive() == AppendAudio(data=bytes(10))
    assert await transport.receive() == CommitAudio()
    for _ in range(2):
        with pytest.raises(TransportClosed):
            await transport.receive()


async def test_long_sound_comes_in_slices_and_in_order() -> None:
    length = 3 * SLICE_BYTES + 10
    _, transport = await opened(text(str(length).rjust(70_000)), text("commit"))
    sizes = []
    while isinstance(event := await transport.receive(), AppendAudio):
        sizes.append(len(event.data))
    assert sizes == [SLICE_BYTES, SLICE_BYTES, SLICE_BYTES, 10]


async def test_events_become_frames_unless_hidden() -> None:
    wire, transport = await opened()
    await transport.send(TranscriptPartial(item_id="i", text="x"))
    await transport.send(AudioCleared())
    assert wire.sent == [{"type": "websocket.send", "text": "AudioCleared"}]


async def test_sending_to_a_peer_that_is_gone_is_transport_closed() -> None:
    wire, transport = await opened()
    wire.gone = True
    for _ in range(2):
        with pytest.raises(TransportClosed):
            await transport.send(AudioCleared())
    await transport.close(1000, "")


async def test_close_twice_sends_one_frame_with_a_reason_that_fits() -> None:
    wire, transport = await opened()
    await transport.close(1011, "ä" * 100)
    await transport.close(1000, "again")
    assert wire.sent == [{"type": "websocket.close", "code": 1011, "reason": "ä" * 61}]
    with pytest.raises(TransportClosed):
        await transport.send(ErrorRaised(code="x", message="x"))


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (
            PeerError("invalid_api_key", "…", close_code=3000),
            3000,
            "invalid_request_error.invalid_api_key",
        ),
        (PeerError("missing_model", "…"), 4000, "invalid_request_error.missing_model"),
        (CapacityError("server_busy", "…", close_code=1013), 1013, "server_busy"),
    ],
)
async def test_refusal_is_one_event_and_a_close(error: Any, code: int, reason: str) -> None:
    wire, transport = await opened()
    await refuse(transport, error)
    assert wire.sent == [
        {"type": "websocket.send", "text": "ErrorRaised"},
        {"type": "websocket.close", "code": code, "reason": reason},
    ]


async def test_refusing_a_peer_that_is_gone_is_no_error() -> None:
    wire, transport = await opened()
    wire.gone = True
    await refuse(transport, PeerError("missing_model", "…"))


def test_subprotocols() -> None:
    offered = ["realtime", "openai-insecure-api-key.k-1", "openai-beta.realtime-v1"]
    assert choose_subprotocol(offered) == "realtime"
    assert choose_subprotocol(offered[1:]) is None
    assert subprotocol_key(offered) == "k-1"
    assert subprotocol_key(["realtime"]) is None


def test_reason_is_cut_between_characters() -> None:
    assert clip_reason("x" * 200) == "x" * 123
    assert clip_reason("x" + "€" * 50) == "x" + "€" * 40
