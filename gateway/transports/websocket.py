"""A peer over a WebSocket (RFC 6455): frames to client events and server events to frames."""

import asyncio
from collections import deque
from dataclasses import replace
from typing import Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from sensorium.gateway.client_events import AppendAudio, ClientEvent
from sensorium.gateway.errors import GatewayError
from sensorium.gateway.ports import TransportClosed
from sensorium.gateway.server_events import ErrorRaised, ServerEvent

SUBPROTOCOL = "realtime"
KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""Browsers can't set headers on a WebSocket, so the key rides in the list of subprotocols."""

OFF_LOOP_CHARS = 64 * 1024
"""Longer frames are decoded in a thread: base64 and JSON of 20 MB take some 50 ms."""
SLICE_BYTES = 64 * 1024
"""Longer sound is handed on in pieces (1.4 s at 24 kHz), so that the loop stays responsive."""
MAX_REASON_BYTES = 123
"""RFC 6455, 5.5: a control frame's payload is 125 bytes, two of which are the code."""


class Dialect(Protocol):
    """A wire vocabulary; `gateway.dialects.realtime.RealtimeDialect` fits."""

    def decode(self, message: str | bytes) -> ClientEvent:
        """Return the event in a text frame (str) or a binary one (bytes); never raises for it."""
        ...

    def encode(self, event: ServerEvent) -> str | None:
        """Return the event as a text frame, or None if this client isn't shown it."""
        ...


class WebSocketTransport:
    """An accepted WebSocket as a `Transport`."""

    def __init__(self, socket: WebSocket, dialect: Dialect) -> None:
        self._socket = socket
        self._dialect = dialect
        self._slices: deque[AppendAudio] = deque()

    async def receive(self) -> ClientEvent:
        """Return the next event, or the next slice of a long append; raises TransportClosed."""
        if self._slices:
            return self._slices.popleft()
        frame = await self._receive_frame()
        if len(frame) <= OFF_LOOP_CHARS:
            return self._dialect.decode(frame)
        event = await asyncio.to_thread(self._dialect.decode, frame)
        if isinstance(event, AppendAudio) and len(event.data) > SLICE_BYTES:
            self._slices.extend(slices(event))
            return self._slices.popleft()
        return event

    async def send(self, event: ServerEvent) -> None:
        """Send one event as a text frame; raises TransportClosed."""
        text = self._dialect.encode(event)
        if text is None:
            return
        try:
            await self._socket.send({"type": "websocket.send", "text": text})
        except (WebSocketDisconnect, WebSocketDisconnected):
            raise TransportClosed from None

    async def close(self, code: int, reason: str) -> None:
        """Send a close frame, once; nothing happens where the peer is gone."""
        try:
            await self._socket.close(code, clip_reason(reason))
        except (WebSocketDisconnect, WebSocketDisconnected):
            return

    async def _receive_frame(self) -> str | bytes:
        try:
            message = await self._socket.receive()
        except WebSocketDisconnected:
            raise TransportClosed from None
        if message["type"] == "websocket.disconnect":
            raise TransportClosed
        text: str | None = message.get("text")
        return text if text is not None else message["bytes"]


async def refuse(transport: WebSocketTransport, error: GatewayError) -> None:
    """Tell the peer why it isn't served, then close: browsers can't read a failed handshake.

    The reason is the live service's: `invalid_request_error.<code>` for what the client did wrong.
    """
    code = error.close_code or 4000
    blame = "" if error.retryable else "invalid_request_error."
    try:
        await transport.send(
            ErrorRaised(
                code=error.code,
                message=error.message,
                param=error.param,
                is_ours=error.retryable,
                close_code=code,
            )
        )
    except TransportClosed:
        return
    await transport.close(code, blame + error.code)


def slices(event: AppendAudio) -> list[AppendAudio]:
    """Cut a long append into appends of SLICE_BYTES at most."""
    starts = range(0, len(event.data), SLICE_BYTES)
    return [replace(event, data=event.data[start : start + SLICE_BYTES]) for start in starts]


def clip_reason(reason: str) -> str:
    """Return as much of `reason` as fits into a close frame."""
    return reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")


def choose_subprotocol(offered: list[str]) -> str | None:
    """Return the subprotocol to select, never the entry with the key."""
    return SUBPROTOCOL if SUBPROTOCOL in offered else None


def subprotocol_key(offered: list[str]) -> str | None:
    """Return the key among the offered subprotocols."""
    for entry in offered:
        if entry.startswith(KEY_SUBPROTOCOL):
            return entry.removeprefix(KEY_SUBPROTOCOL)
    return None
