"""Every request and event survives the socket; anything else on it is refused."""

import asyncio
import collections.abc
import contextlib
import dataclasses
import math
import socket
import struct
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.core import ipc
from sensorium.core.api import AppendMedia, CloseSequence, SequenceId, SpanId
from sensorium.core.config import EngineConfig

SCALARS: dict[object, st.SearchStrategy[object]] = {
    int: st.integers(0, 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    str: st.text(max_size=5),
    type(None): st.none(),
}


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation of core/api.py: scalars, literals, unions, tuples, dataclasses."""
    arguments = typing.get_args(annotation)
    if annotation is AppendMedia:  # its buffer fits its shape
        return MEDIA
    if annotation is EngineConfig:  # its fields have bounds
        return st.builds(EngineConfig, threads=st.integers(0, 64), capacity=st.integers(0, 9))
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        return st.builds(annotation, **{name: values(hints[name]) for name in hints})
    if isinstance(annotation, typing.NewType):
        return values(annotation.__supertype__)
    if typing.get_origin(annotation) is typing.Literal:
        return st.sampled_from(arguments)
    if typing.get_origin(annotation) is collections.abc.Mapping:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if typing.get_origin(annotation) is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(values(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, arguments))
    if arguments:
        return st.one_of([values(argument) for argument in arguments])
    return SCALARS[annotation]


MEDIA = st.builds(
    lambda pts, shape, dtype: AppendMedia(
        sequence_id=SequenceId(1),
        span_id=SpanId(2),
        pts=pts,
        shape=shape,
        dtype=dtype,
        data=bytes(math.prod(shape) * (4 if dtype == "float32" else 1)),
    ),
    st.integers(0, 2**63 - 1),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.sampled_from(["float32", "uint8"]),
)
MESSAGES = st.lists(st.one_of([values(kind) for kind in typing.get_args(ipc.Message)]), max_size=3)


def split(frame: bytes) -> tuple[bytes, bytes]:
    num_header_bytes, num_payload_bytes = struct.unpack_from("<II", frame)
    assert len(frame) == 8 + num_header_bytes + num_payload_bytes
    return frame[8 : 8 + num_header_bytes], frame[8 + num_header_bytes :]


@given(MESSAGES)
def test_every_message_survives(sent: list[ipc.Message]) -> None:
    assert ipc.decode(*split(ipc.encode(sent))) == sent


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_garbage_is_refused_or_empty(header: bytes, payload: bytes) -> None:
    with contextlib.suppress(ipc.WireError):
        assert ipc.decode(header, payload) == []


@pytest.mark.parametrize(
    ("header", "payload", "complaint"),
    [
        ([("Exec", {}, 0)], b"", "unknown message 'Exec'"),
        ([("CloseSequence", {}, 0)], b"", "sequence_id"),
        ([("CloseSequence", {"sequence_id": "1"}, 0)], b"", "Expected `int`"),
        ([("CloseSequence", {"sequence_id": 1}, 4)], b"abcd", "has no buffer"),
        ([("CloseSequence", {"sequence_id": 1}, 0)], b"abcd", "belong to no message"),
        ([("Start", {"models": {}, "engine": {"block_size": 0}}, 0)], b"", "block_size"),
    ],
)
def test_a_wrong_message_is_named(header: list[object], payload: bytes, complaint: str) -> None:
    with pytest.raises(ipc.WireError, match=complaint):
        ipc.decode(msgspec.msgpack.encode(header), payload)


@pytest.mark.parametrize("num_bytes", [-4, 3, 8])
def test_a_wrong_length_of_sound_is_refused(num_bytes: int) -> None:
    fields = {"sequence_id": 1, "span_id": 1, "pts": 0, "shape": [1], "data": b""}
    header = msgspec.msgpack.encode([("AppendMedia", fields, num_bytes)])
    with pytest.raises(ipc.WireError):
        ipc.decode(header, b"abc" if num_bytes == 3 else b"abcd")


def test_a_frame_too_large_is_not_sent() -> None:
    data = bytes(ipc.MAX_FRAME_BYTES)
    request = AppendMedia(
        sequence_id=SequenceId(1), span_id=SpanId(1), pts=0, shape=(len(data) // 4,), data=data
    )
    with pytest.raises(ipc.WireError, match="exceeds the limit"):
        ipc.encode([request])


def test_a_frame_too_large_is_not_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<II", 2**31, 0))
        with pytest.raises(ipc.WireError, match="exceeds the limit"):
            ipc.Channel(ours).receive()


@pytest.mark.parametrize("rest", [b"", b"\x05\x00", struct.pack("<II", 10, 0) + b"half"])
def test_the_end_of_the_stream_is_the_death_of_the_peer(rest: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(rest)
    theirs.close()
    assert ipc.Channel(ours).receive() is None
    ours.close()


async def test_both_ends_meet_on_a_socket() -> None:
    ours, theirs = socket.socketpair()
    channel = ipc.Channel(theirs)
    reader, writer = await asyncio.open_connection(sock=ours)
    request = CloseSequence(sequence_id=SequenceId(7))
    writer.write(ipc.encode([request]))
    assert await asyncio.to_thread(channel.receive) == [request]
    await asyncio.to_thread(channel.send, [request, request])
    assert await ipc.receive(reader) == [request, request]
    channel.close()
    assert await ipc.receive(reader) is None
    writer.close()
