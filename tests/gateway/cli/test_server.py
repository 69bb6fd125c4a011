"""The server on a real socket: its end, frames too large, clients that leave."""

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from app_rig import fake_engine, make_app, services_of, until
from starlette.applications import Starlette
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from sensorium.gateway import connection
from sensorium.gateway.cli import server as server_module
from sensorium.gateway.cli.server import MAX_FRAME_BYTES, GatewayServer
from sensorium.gateway.settings import GatewaySettings, Settings

HANDSHAKE = (
    b"GET /v1/realtime?model=default HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
FRAME = b"\x81\x82\0\0\0\0{}"
"""A masked text frame (RFC 6455, 5.2) with an event that has no type."""


@asynccontextmanager
async def serving(app: Starlette) -> AsyncIterator[str]:
    """Serve `app` on a free port of 127.0.0.1; yields host and port."""
    listener = socket.create_server(("127.0.0.1", 0))
    host, port = listener.getsockname()
    server = GatewayServer(app, host=host, port=port)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(server.serve(sockets=[listener]))
        await until(lambda: server.started)
        yield f"{host}:{port}"
        server.should_exit = True


def session(place: str) -> connect:
    return connect(f"ws://{place}/v1/realtime?model=default", compression=None, proxy=None)


async def last_words(socket: ClientConnection) -> dict[str, object]:
    """Return the last event before the server's close."""
    event: dict[str, object] = {}
    try:
        while True:
            event = json.loads(await socket.recv())
    except ConnectionClosed:
        return event


async def test_signal_tells_sessions_and_ends_normally(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(make_app()) as place, session(place) as socket:
        await socket.recv()
        signal.raise_signal(signal.SIGTERM)
        event = await last_words(socket)
    error = event["error"]
    assert isinstance(error, dict)
    assert (error["code"], socket.close_code) == ("server_shutting_down", 1012)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_frame_beyond_the_limit_closes_with_1009_and_only_that_session() -> None:
    async with serving(make_app()) as place, session(place) as other:
        await other.recv()
        async with session(place) as socket:
            with contextlib.suppress(ConnectionClosed):  # it may come before all is sent
                await socket.send("x" * (MAX_FRAME_BYTES + 1))
            await last_words(socket)
            assert socket.close_code == 1009
        await other.send("{}")
        assert json.loads(await other.recv())["type"] == "error"


async def test_client_that_leaves_mid_stream_frees_its_sequence() -> None:
    engine = fake_engine()
    engine.held = True
    app = make_app(engine)
    ask = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with serving(app) as place, httpx.AsyncClient(trust_env=False) as client:
        async with client.stream("POST", f"http://{place}/v1/chat/completions", json=ask) as answer:
            assert (await anext(answer.aiter_lines())).startswith("data: ")
        await until(lambda: not engine.sequences and not services_of(app).live)


async def test_client_that_vanishes_frees_its_session() -> None:
    engine = fake_engine()
    engine.held = True
    app = make_app(engine)
    async with serving(app) as place:
        socket = await session(place)
        await socket.recv()
        socket.transport.abort()
        await until(lambda: not services_of(app).live)
    assert engine.sequences == {}


async def test_client_that_never_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "LINGER_S", 0.1)
    monkeypatch.setattr(connection, "MAX_CLOSE_S", 0.1)
    app = make_app(settings=Settings(gateway=GatewaySettings(max_send_s=0.1)))
    async with serving(app) as place:
        host, port = place.split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        writer.write(HANDSHAKE)
        await until(lambda: bool(services_of(app).live))
        writer.write(FRAME * 100_000)  # each is answered with an error
        await until(lambda: writer.transport.is_closing() or not services_of(app).live)
        assert not services_of(app).live
        assert b"slow_clients_total 1.0" in services_of(app).metrics.render()
        writer.transport.abort()
