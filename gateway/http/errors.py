"""HTTP errors in OpenAI's shape: {"error": {message, type, code, param}}."""

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sensorium.encoders.media import MediaError
from sensorium.gateway.errors import CapacityError, GatewayError, PeerError

RETRY_AFTER_S = 2

_STATUS_CODES = {404: "not_found", 405: "method_not_allowed"}
_PEER_STATUS = {
    "invalid_api_key": 401,
    "forbidden": 403,
    "model_not_found": 404,
    "request_timeout": 408,
}


class RequestTooLarge(PeerError):
    """The body is larger than this path takes."""

    def __init__(self, limit_bytes: int) -> None:
        limit = f"{limit_bytes / 2**20:g} MiB"
        super().__init__("request_too_large", f"The body is larger than {limit}, the limit here.")


def error_response(status: int, code: str, message: str, param: str | None = None) -> Response:
    """Return an error as its HTTP response."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    response = Response(msgspec.json.encode(body), status, media_type="application/json")
    if status == 503:
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


async def on_gateway_error(request: Request, error: Exception) -> Response:
    """Answer a GatewayError that an endpoint raised."""
    assert isinstance(error, GatewayError)
    return response_to(error)


async def on_media_error(request: Request, error: Exception) -> Response:
    """Answer a file that can't be decoded."""
    assert isinstance(error, MediaError)
    return error_response(400, error.code, str(error), "file")


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer what starlette refused: unknown paths, wrong methods, broken forms."""
    assert isinstance(error, HTTPException)
    code = _STATUS_CODES.get(error.status_code, "invalid_request")
    message = {
        404: f"There is nothing at {request.url.path[:200]}.",
        405: f"{request.url.path[:200]} doesn't take {request.method}.",
    }.get(error.status_code, error.detail)
    response = error_response(error.status_code, code, message)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def on_crash(request: Request, error: Exception) -> Response:
    """Answer a fault of ours (the traceback goes to the log, nothing to the peer)."""
    return error_response(500, "internal_error", "The server failed; this is its fault.")


def response_to(error: GatewayError) -> Response:
    """Return a GatewayError as its HTTP response."""
    match error:
        case RequestTooLarge():
            status = 413
        case PeerError():
            status = _PEER_STATUS.get(error.code, 400)
        case CapacityError():
            status = 503
        case _:
            status = 500
    return error_response(status, error.code, error.message, error.param)
