"""Bodies that never end, and clients that leave."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from app_rig import fake_engine, http_client, make_app
from starlette.requests import ClientDisconnect
from starlette.types import Message

from sensorium.gateway.errors import PeerError
from sensorium.gateway.http import body
from sensorium.gateway.http.body import while_connected


async def stay() -> Message:
    await asyncio.Event().wait()
    raise AssertionError("nobody set it")


async def leave() -> Message:
    return {"type": "http.disconnect"}


async def test_work_of_a_client_that_stays_is_done() -> None:
    async def work() -> int:
        return 7

    assert await while_connected(stay, work()) == 7


async def test_error_of_the_work_arrives_as_it_is() -> None:
    async def work() -> None:
        raise PeerError("invalid_value", "No.")

    with pytest.raises(PeerError, match="No"):
        await while_connected(stay, work())


async def test_work_of_a_client_that_leaves_is_cancelled() -> None:
    cancelled = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(ClientDisconnect):
        await while_connected(leave, work())
    assert cancelled


async def test_body_that_does_not_arrive_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    monkeypatch.setattr(body, "MAX_ARRIVAL_S", 0.05)
    async with http_client(make_app(fake_engine())) as client:
        response = await client.post("/v1/chat/completions", content=trickle())
    assert response.status_code == 408
    assert response.json()["error"]["code"] == "request_timeout"
