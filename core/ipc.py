"""How gateway and engine process talk: frames of typed messages over a Unix socket, no pickle.

The socket is one end of a `socketpair` inherited by the child, so nothing lies on disk, nobody
else can connect, and the death of either side is the end of the stream at the other.

A frame is two little-endian uint32 (bytes of header, bytes of payload), the header, the payload.
The header is a MessagePack list of (type name, fields, bytes of payload), one entry per message;
buffers (`AppendMedia.data`) lie raw and in order in the payload. Field values are decoded
strictly into the dataclasses of `core/api.py`: anything else is a WireError.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

import msgspec

from sensorium.core.api import AppendMedia, EngineEvent, EngineLoad, EngineRequest, ModelInfo
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import CoreError

MAX_FRAME_BYTES = 16 * 2**20
_LENGTHS = struct.Struct("<II")


class WireError(CoreError):
    """Bytes on the socket that are not a frame of known messages, or a frame too large to send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """First message to the engine process: what to load."""

    models: ModelsConfig
    engine: EngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Last message to the engine process: end now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The engine is loaded and warm; requests may come."""

    info: ModelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """The engine can't be loaded. `kind` names the class in core/errors.py."""

    kind: str
    message: str


Control = Start | Stop | Ready | StartFailed | EngineLoad
Message = EngineRequest | EngineEvent | Control

_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind) for kind in get_args(Message)
}
_HEADER = msgspec.msgpack.Decoder(list[tuple[str, msgspec.Raw, int]])
_ENCODER = msgspec.msgpack.Encoder()


def encode(messages: Sequence[Message]) -> bytes:
    """Return one frame; raises WireError if it would exceed MAX_FRAME_BYTES."""
    return b"".join(parts(messages))


def parts(messages: Sequence[Message]) -> list[bytes]:
    """Return one frame in parts, so that buffers needn't be copied; raises WireError as above."""
    header, payload = [], []
    for message in messages:
        buffer = b""
        if isinstance(message, AppendMedia):
            message, buffer = replace(message, data=b""), message.data
            payload.append(buffer)
        header.append((type(message).__name__, message, len(buffer)))
    head = _ENCODER.encode(header)
    num_payload_bytes = sum(map(len, payload))
    _check_size(len(head), num_payload_bytes)
    return [_LENGTHS.pack(len(head), num_payload_bytes) + head, *payload]


def decode(header: bytes, payload: bytes) -> list[Message]:
    """Return the messages of a frame's header and payload; raises WireError."""
    messages: list[Message] = []
    offset = 0
    try:
        for name, fields, num_bytes in _HEADER.decode(header):
            message = _DECODERS[name].decode(fields)
            if isinstance(message, AppendMedia):
                buffer = payload[offset : offset + num_bytes] if num_bytes >= 0 else b""
                message = replace(message, data=buffer)
                if len(buffer) != num_bytes or num_bytes != message.num_bytes:
                    raise WireError(
                        f"{num_bytes} bytes of media are announced, {len(buffer)} are there and "
                        f"{list(message.shape)} of {message.dtype} need {message.num_bytes}"
                    )
                offset += num_bytes
            elif num_bytes:
                raise WireError(f"{name} has no buffer, yet {num_bytes} bytes are announced")
            messages.append(cast(Message, message))
    except KeyError as error:
        raise WireError(f"unknown message {error}") from error
    except msgspec.MsgspecError as error:
        raise WireError(f"not a message: {error}") from error
    if offset != len(payload):
        raise WireError(f"{len(payload) - offset} bytes of payload belong to no message")
    return messages


def _check_size(num_header_bytes: int, num_payload_bytes: int) -> None:
    size = _LENGTHS.size + num_header_bytes + num_payload_bytes
    if size > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {size} bytes exceeds the limit of {MAX_FRAME_BYTES}")


async def receive(reader: asyncio.StreamReader) -> list[Message] | None:
    """Return the next frame's messages, or None once the other side is gone; raises WireError."""
    try:
        num_header_bytes, num_payload_bytes = _LENGTHS.unpack(
            await reader.readexactly(_LENGTHS.size)
        )
        _check_size(num_header_bytes, num_payload_bytes)
        header = await reader.readexactly(num_header_bytes)
        payload = await reader.readexactly(num_payload_bytes)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return decode(header, payload)


class Channel:
    """The engine's end: blocking, one reading thread, any number of writing ones.

    A gateway that doesn't read makes `send` wait, which pauses generation; the gateway's own
    writes never wait for the engine, so the two can't lock each other.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()

    def send(self, messages: Sequence[Message]) -> None:
        """Write one frame; raises ConnectionError once the gateway is gone."""
        frame = encode(messages)
        with self._sending:
            self._socket.sendall(frame)

    def receive(self) -> list[Message] | None:
        """Return the next frame's messages, or None once the gateway is gone; raises WireError."""
        lengths = self._read(_LENGTHS.size)
        if lengths is None:
            return None
        num_header_bytes, num_payload_bytes = _LENGTHS.unpack(lengths)
        _check_size(num_header_bytes, num_payload_bytes)
        header, payload = self._read(num_header_bytes), self._read(num_payload_bytes)
        return None if header is None or payload is None else decode(header, payload)

    def close(self) -> None:
        """End the connection; a waiting `receive` returns None."""
        with contextlib.suppress(OSError):  # the other side may have been faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, num_bytes: int) -> bytes | None:
        buffer = bytearray(num_bytes)
        view = memoryview(buffer)
        while view:
            try:
                num_read = self._socket.recv_into(view)
            except OSError:
                return None
            if num_read == 0:
                return None
            view = view[num_read:]
        return bytes(buffer)
