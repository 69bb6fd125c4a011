"""uvicorn as this gateway wants it: sessions told before the end, no socket left by slow peers."""

import socket
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from sensorium.gateway.services import Services

MAX_FRAME_BYTES = 24 * 2**20
"""An append of 15 MiB, the protocol's limit, has 20 MiB as base64 in JSON."""
PING_S = 20.0
DRAIN_S = 2.5
STOP_S = 1
"""How long connections may take after the drain."""
LINGER_S = 12.0
"""More than the 10 s that uvicorn gives a peer to answer a close frame."""


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Ends the TCP connection for good some time after its session.

    uvicorn's `close` waits for what is buffered; a peer that never reads would keep it for ever.
    """

    async def run_asgi(self) -> None:
        """Run the application for this connection, then see to its end."""
        await super().run_asgi()
        self.loop.call_later(LINGER_S, self.transport.abort)

    def shutdown(self) -> None:
        """End the connection because the server stops."""
        super().shutdown()
        self.loop.call_later(STOP_S / 2, self.transport.abort)


class GatewayServer(uvicorn.Server):
    """Drains the gateway before it closes connections, and exits normally on a signal."""

    def __init__(self, app: Starlette, *, host: str, port: int) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            loop="asyncio",
            http="h11",
            ws=WebSocketProtocol,
            ws_max_size=MAX_FRAME_BYTES,
            ws_per_message_deflate=False,  # sound in base64 doesn't shrink
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            log_config=None,
            log_level="warning",  # lower levels log query strings
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_S,
        )
        super().__init__(config)
        self._services: Services = app.state.services

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell every session and request, then close what is left."""
        await self._services.drain(DRAIN_S)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on SIGINT or SIGTERM; a second one doesn't wait. Unlike uvicorn's own it is final:
        the signal isn't raised again afterwards, so that the exit status is 0."""
        self.force_exit = self.should_exit
        self.should_exit = True
