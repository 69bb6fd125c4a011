"""Routes and lifespan of the gateway: which endpoint answers which path, and to whom."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from sensorium.core.text.prompt import Prompt
from sensorium.encoders.decode import close_decoders, warm_decoders
from sensorium.encoders.media import MediaError
from sensorium.gateway.activity import ActivityPool, Detector
from sensorium.gateway.admission import Admission, bearer_key
from sensorium.gateway.errors import GatewayError, PeerError
from sensorium.gateway.http import errors
from sensorium.gateway.http.chat import ChatEndpoint
from sensorium.gateway.http.models import ModelsEndpoint
from sensorium.gateway.http.page import Page
from sensorium.gateway.http.realtime import RealtimeEndpoint
from sensorium.gateway.http.status import StatusEndpoint
from sensorium.gateway.http.transcriptions import TranscriptionsEndpoint
from sensorium.gateway.metrics import Metrics
from sensorium.gateway.ports import EnginePort
from sensorium.gateway.services import Services
from sensorium.gateway.settings import Settings

logger = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a client that left; nobody reads it."""


def create_app(
    *,
    engine: EnginePort,
    prompt: Prompt,
    detector: Detector[Any],
    settings: Settings,
    api_key: str | None,
) -> Starlette:
    """Return the ASGI application; `app.state.services` is what its endpoints share."""
    metrics = Metrics(engine)
    services = Services(
        engine=engine,
        prompt=prompt,
        activity=ActivityPool(detector),
        admission=Admission(engine=engine, metrics=metrics, settings=settings.gateway, key=api_key),
        metrics=metrics,
        settings=settings,
    )
    app = Starlette(
        routes=_routes(services),
        lifespan=_lifespan,
        exception_handlers={
            GatewayError: errors.on_gateway_error,
            MediaError: errors.on_media_error,
            HTTPException: errors.on_http_exception,
            ClientDisconnect: _on_disconnect,
            Exception: errors.on_crash,
        },
    )
    app.router.default = Page()  # not a route: those would hide their 405s behind its 404
    app.add_middleware(Gate, admission=services.admission)
    app.state.services = services
    return app


def _routes(services: Services) -> list[Route | WebSocketRoute]:
    realtime = RealtimeEndpoint(services)
    models, status = ModelsEndpoint(services), StatusEndpoint(services)
    return [
        WebSocketRoute("/v1/realtime", realtime.connect),
        Route("/v1/realtime", realtime.upgrade_required),
        Route("/v1/chat/completions", ChatEndpoint(services).complete, methods=["POST"]),
        Route(
            "/v1/audio/transcriptions", TranscriptionsEndpoint(services).create, methods=["POST"]
        ),
        Route("/v1/models", models.list),
        Route("/v1/models/{name:path}", models.get),
        Route("/health", status.health),
        Route("/ready", status.ready),
        Route("/metrics", status.metrics),
    ]


class Gate:
    """Lets through what may talk to us: checks peer and key of every HTTP request.

    `/health`, `/ready` and the page are for anyone who reaches us; WebSockets are the realtime
    endpoint's business, because they are refused differently.
    """

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, then pass on."""
        if scope["type"] == "http":
            request = Request(scope)
            try:
                self._check(request)
            except PeerError as error:
                await errors.response_to(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        self._admission.check_peer(request.client.host if request.client else None, request.headers)
        if request.url.path.startswith("/v1/") or request.url.path == "/metrics":
            self._admission.check_key(bearer_key(request.headers))


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    services: Services = app.state.services
    async with asyncio.TaskGroup() as group:
        scoring = group.create_task(services.activity.run())
        group.create_task(warm_decoders())
        yield
        scoring.cancel()
    close_decoders()


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)
