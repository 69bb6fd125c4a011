"""The whole gateway over a fake engine: an app, clients for it, and a server on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import numpy as np
from fakes import FakeEngine
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tiny_text import tiny_prompt

from sensorium.core.text.prompt import Prompt
from sensorium.encoders.media import Samples
from sensorium.gateway.app import create_app
from sensorium.gateway.services import Services
from sensorium.gateway.settings import Settings

BASE_URL = "http://127.0.0.1"


class LoudnessDetector:
    """Calls a window speech if its loudest sample is above 0.01; counts the windows per state."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def open(self) -> list[int]:
        """Return a state that counts."""
        return [0]

    def score(self, windows: list[Samples], states: list[list[int]]) -> list[float]:
        """Score windows and count them."""
        self.batches.append(len(windows))
        for state in states:
            state[0] += 1
        return [float(np.abs(window).max() > 0.01) for window in windows]


def fake_engine(**options: Any) -> FakeEngine:
    """Return a perfect engine that speaks the tiny prompt's ids."""
    encode = options.pop("encode", tiny_prompt().tokenizer.encode)
    return FakeEngine(auto=True, encode=encode, **options)


def make_app(
    engine: FakeEngine | None = None,
    *,
    settings: Settings | None = None,
    api_key: str | None = None,
    prompt: Prompt | None = None,
) -> Starlette:
    """Return an app; its services are at `app.state.services`."""
    return create_app(
        engine=engine or fake_engine(),
        prompt=prompt or tiny_prompt(),
        detector=LoudnessDetector(),
        settings=settings or Settings(),
        api_key=api_key,
    )


def services_of(app: Starlette) -> Services:
    """Return what the app's endpoints share."""
    services: Services = app.state.services
    return services


@asynccontextmanager
async def http_client(
    app: Starlette, *, peer: str = "127.0.0.1", base_url: str = BASE_URL
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that calls the app directly, as a peer with that address."""
    transport = httpx.ASGITransport(app=app, client=(peer, 50_000), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=base_url) as client:
        yield client


@contextmanager
def websocket_client(app: Starlette, *, peer: str = "127.0.0.1") -> Iterator[TestClient]:
    """Yield a client for WebSockets, with the app's lifespan running around it."""
    with TestClient(app, base_url=BASE_URL, client=(peer, 50_000)) as client:
        yield client


async def until(condition: Callable[[], bool]) -> None:
    """Let everything run until `condition()`, ten seconds at most."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never happened")
