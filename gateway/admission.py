"""May this client in? Key, origin and free places; a session once admitted is served to its end."""

import hmac
import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from sensorium.gateway.errors import CapacityError, PeerError
from sensorium.gateway.metrics import Metrics
from sensorium.gateway.ports import EnginePort
from sensorium.gateway.settings import GatewaySettings

TRY_AGAIN_LATER = 1013
"""WebSocket close code of RFC 6455's registry: the server is overloaded."""
UNAUTHORIZED = 3000
"""WebSocket close code of the IANA registry."""


class Admission:
    """Decides who is served and counts the places.

    With a key every client must present it. Without one only this machine is served: peer, Host
    and Origin must be loopback, so that neither a page elsewhere nor a name that was rebound to
    127.0.0.1 reaches the server through a local browser.
    """

    def __init__(
        self, *, engine: EnginePort, metrics: Metrics, settings: GatewaySettings, key: str | None
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._settings = settings
        self._key = key
        self._num_sessions = 0
        self._num_requests = 0

    def check_peer(self, peer: str | None, headers: Mapping[str, str]) -> None:
        """Raise PeerError unless a client at address `peer` may talk to us at all.

        Says nothing about its key. `headers` has lower-case names.
        """
        if self._key is not None:
            return
        if peer is None or not is_loopback(peer):
            raise _forbidden("Without SENSORIUM_API_KEY this server serves its own machine only.")
        origin = headers.get("origin")
        if origin is not None and origin in self._settings.allowed_origins:
            return
        if not is_loopback(_hostname(f"//{headers.get('host', '')}")):
            raise _forbidden(
                "Without SENSORIUM_API_KEY this server answers to loopback names only: "
                "use 127.0.0.1 or localhost."
            )
        if origin is not None and not is_loopback(_hostname(origin)):
            raise _forbidden(
                f"Pages from {origin[:200]} may not use this server; list the origin under "
                "gateway.allowed_origins to let them."
            )

    def check_key(self, presented: str | None) -> None:
        """Raise PeerError unless `presented` is the key (or none is set); takes constant time."""
        if self._key is None:
            return
        given = (presented or "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self._key.encode("utf-8", "surrogateescape")):
            how = "Send it as `Authorization: Bearer …`."
            problem = "The API key is wrong." if presented else "This server needs an API key."
            raise PeerError("invalid_api_key", f"{problem} {how}", close_code=UNAUTHORIZED)

    @contextmanager
    def session_place(self) -> Iterator[None]:
        """Hold a place of a session; raises CapacityError (`server_busy`, close 1013)."""
        self._check_engine()
        info, load = self._engine.info, self._engine.load
        places = self._settings.max_sessions or (info.capacity if info else 0)
        if self._num_sessions >= places:
            raise _busy(f"All {places} places are taken; try again later.")
        if load is not None and load.encoder_lag_s > self._settings.max_encoder_lag_s:
            raise _busy("The speech encoder is behind; try again later.")
        self._num_sessions += 1
        self._metrics.sessions_open.inc()
        try:
            yield
        finally:
            self._num_sessions -= 1
            self._metrics.sessions_open.dec()

    @contextmanager
    def request_place(self, endpoint: str) -> Iterator[None]:
        """Hold a place of an HTTP request; raises CapacityError (`server_busy`)."""
        self._check_engine()
        if self._num_requests >= self._settings.max_requests:
            raise _busy(f"{self._num_requests} requests are already running; try again later.")
        self._metrics.requests.labels(endpoint).inc()
        self._num_requests += 1
        try:
            yield
        finally:
            self._num_requests -= 1

    def _check_engine(self) -> None:
        if self._engine.info is None:
            raise _busy("The model is still starting; try again later.")


def is_loopback(host: str) -> bool:
    """Tell whether an address or host name can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def bearer_key(headers: Mapping[str, str]) -> str | None:
    """Return the key from `Authorization: Bearer …` or Azure's `api-key` header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("api-key")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _forbidden(message: str) -> PeerError:
    return PeerError("forbidden", message, close_code=UNAUTHORIZED)


def _busy(message: str) -> CapacityError:
    return CapacityError("server_busy", message, close_code=TRY_AGAIN_LATER)
