"""`/` and its files: the page of `sensorium.web`, as it lies in the package."""

from importlib.resources import files
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

_SUFFIXES = (".html", ".css", ".js", ".svg", ".wav", ".ico", ".png")
_POLICY = {
    # The page's own files and sockets only; `ws:` for browsers in which 'self' leaves them out.
    "Content-Security-Policy": "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' "
    "data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Permissions-Policy": "microphone=(self), camera=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # always asked for again, answered by 304 from the ETag
}


class Page(StaticFiles):
    """The package's web files; anything else below `/` is a 404."""

    def __init__(self) -> None:
        super().__init__(directory=Path(str(files("sensorium.web"))), html=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a file; there are no WebSockets here."""
        if scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file of the page with the headers that keep it to itself."""
        if path != "." and not path.endswith(_SUFFIXES):
            raise HTTPException(404)
        response = await super().get_response(path, scope)
        for name, value in _POLICY.items():
            response.headers[name] = value
        return response
