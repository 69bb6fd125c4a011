"""Request bodies, bounded in size and time, and requests whose client leaves."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.errors import RequestTooLarge

MAX_ARRIVAL_S = 120.0
"""25 MiB over 2 Mbit/s; a client that sends a byte now and then holds a place no longer."""

Result = TypeVar("Result")


def bounded(request: Request, limit_bytes: int) -> Request:
    """Return the request with a body that raises RequestTooLarge past `limit_bytes`.

    A declared length is believed at once; what arrives is counted all the same.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit_bytes:
        raise RequestTooLarge(limit_bytes)
    num_bytes = 0

    async def receive() -> Message:
        nonlocal num_bytes
        message = await request.receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > limit_bytes:
            raise RequestTooLarge(limit_bytes)
        return message

    return Request(request.scope, receive)


@asynccontextmanager
async def arriving() -> AsyncIterator[None]:
    """Bound the time that a body may take; raises PeerError (`request_timeout`)."""
    try:
        async with asyncio.timeout(MAX_ARRIVAL_S):
            yield
    except TimeoutError:
        limit = f"{MAX_ARRIVAL_S:g} s"
        raise PeerError("request_timeout", f"The body didn't arrive within {limit}.") from None


async def while_connected(receive: Receive, work: Coroutine[None, None, Result]) -> Result:
    """Run `work`; cancel it and raise ClientDisconnect if the client leaves before it ends.

    The request's body must have been read.
    """
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(_watch(receive))
            result = await work
            watching.cancel()
    except ExceptionGroup as group_error:
        raise group_error.exceptions[0] from None  # one of two: the work's own, or _watch's
    return result


async def _watch(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
