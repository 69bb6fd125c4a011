"""Errors by whose fault they are: that decides what the peer is told, and how."""


class GatewayError(Exception):
    """Base of all. `code` is stable; with a (WebSocket) `close_code` the session ends."""

    retryable = False

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        close_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.close_code = close_code


class PeerError(GatewayError):
    """The client broke the rules; the message says what was wrong and what would be right."""


class CapacityError(GatewayError):
    """No room now; the same request may succeed later."""

    retryable = True


class InternalError(GatewayError):
    """Our fault: everything is logged, nothing is told beyond the code."""
