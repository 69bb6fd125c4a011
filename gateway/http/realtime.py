"""`/v1/realtime`: who gets a session over a WebSocket, and the refusals of who doesn't."""

import asyncio
import logging
import time
from collections.abc import Mapping

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from sensorium.core.api import ModelInfo
from sensorium.gateway.admission import bearer_key
from sensorium.gateway.connection import Connection
from sensorium.gateway.dialects.realtime import RealtimeDialect
from sensorium.gateway.errors import CapacityError, GatewayError, PeerError
from sensorium.gateway.http.errors import error_response
from sensorium.gateway.services import STOPPING, STOPPING_MESSAGE, Services
from sensorium.gateway.session import Session
from sensorium.gateway.transports.websocket import (
    WebSocketTransport,
    choose_subprotocol,
    refuse,
    subprotocol_key,
)

logger = logging.getLogger(__name__)

BAD_REQUEST = 4000
"""Close code of the live service for sessions that can't be configured as asked."""


class RealtimeEndpoint:
    """Accepts WebSockets and runs a session on each that is admitted."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def connect(self, socket: WebSocket) -> None:
        """Serve one WebSocket to its end."""
        services = self._services
        peer = socket.client.host if socket.client else None
        try:
            services.admission.check_peer(peer, socket.headers)
        except PeerError as error:
            services.metrics.sessions_refused.labels(error.code).inc()
            await socket.close(error.close_code or BAD_REQUEST, error.code)  # before accept: a 403
            return
        offered: list[str] = socket.scope.get("subprotocols", [])
        await socket.accept(subprotocol=choose_subprotocol(offered))
        live, channels, video = (
            socket.query_params.get(name, "").lower() in ("true", "1")
            for name in ("live_transcripts", "channels", "video")
        )
        transport = WebSocketTransport(socket, RealtimeDialect(live_transcripts=live, video=video))
        try:
            services.admission.check_key(bearer_key(socket.headers) or subprotocol_key(offered))
            check_wishes(socket.query_params, socket.headers)
            if services.stopping:
                raise CapacityError(STOPPING, STOPPING_MESSAGE, close_code=1012)
            with services.admission.session_place():
                model = self._model(socket.query_params["model"])
                await self._serve(transport, model, live=live, channels=channels)
        except GatewayError as error:
            services.metrics.sessions_refused.labels(error.code).inc()
            logger.info("a session is refused: %s", error.code)
            await refuse(transport, error)

    async def upgrade_required(self, request: Request) -> Response:
        """Answer plain HTTP on the WebSocket's path."""
        message = "This path speaks WebSocket: connect with ws:// or wss://."
        response = error_response(426, "upgrade_required", message)
        response.headers["Upgrade"] = "websocket"
        return response

    def _model(self, name: str) -> ModelInfo:
        info = self._services.engine.info
        if info is None:
            raise CapacityError("server_busy", "The model is starting.", close_code=1013)
        if name not in ("default", info.name):
            known = f"Known models are default and {info.name}."
            raise PeerError(
                "invalid_model",
                f"There is no model {name[:100]!r}. {known}",
                param="model",
                close_code=BAD_REQUEST,
            )
        return info

    async def _serve(
        self, transport: WebSocketTransport, model: ModelInfo, *, live: bool, channels: bool
    ) -> None:
        services = self._services
        session = Session(
            model=model,
            prompt=services.prompt,
            settings=services.settings.session,
            new_sequence_id=services.engine.new_sequence_id,
            now=asyncio.get_running_loop().time(),
            clock_unix=time.time(),
            live_transcripts=live,
            channels=channels,
        )
        connection = Connection(
            session=session,
            transport=transport,
            engine=services.engine,
            activity=services.activity,
            metrics=services.metrics,
            settings=services.settings.gateway,
        )
        services.live.add(connection)
        try:
            await connection.run()
        finally:
            services.live.discard(connection)


def check_wishes(query: Mapping[str, str] | QueryParams, headers: Mapping[str, str]) -> None:
    """Raise PeerError for a handshake that asks for something that isn't served."""
    if "realtime=v1" in headers.get("openai-beta", "").replace(" ", ""):
        raise _refusal(
            "beta_api_shape_disabled",
            "The beta shape of the Realtime API isn't served; leave out the header OpenAI-Beta.",
        )
    if "intent" in query:
        raise _refusal(
            "unsupported_intent",
            "Sessions that only transcribe aren't served; connect with ?model=default and set "
            "session.audio.input.transcription and turn_detection.create_response=false.",
            "intent",
        )
    if "call_id" in query:
        raise _refusal("unsupported_call", "There are no calls to join here.", "call_id")
    if not query.get("model"):
        raise _refusal("missing_model", "Name a model: ?model=default", "model")


def _refusal(code: str, message: str, param: str | None = None) -> PeerError:
    return PeerError(code, message, param=param, close_code=BAD_REQUEST)
