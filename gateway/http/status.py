"""`/health`, `/ready` and `/metrics`: for those who run the server."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sensorium.gateway.metrics import CONTENT_TYPE_LATEST
from sensorium.gateway.services import Services


class StatusEndpoint:
    """Tells whether the process lives, whether it can serve, and how it has been doing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def health(self, request: Request) -> Response:
        """Answer 200 as long as this process does its job; `engine` says how the other one is."""
        load = self._services.engine.load
        body: dict[str, object] = {"status": "ok", "engine": self._engine_state()}
        if load is not None:
            body["load"] = {
                "encoder_lag_s": round(load.encoder_lag_s, 3),
                "encoder_busy": round(load.encoder_busy, 3),
                "sequences": load.num_sequences,
                "free_blocks": load.num_free_blocks,
            }
        return _json(200, body)

    async def ready(self, request: Request) -> Response:
        """Answer 200 once sessions can begin, else 503 with what is missing."""
        if self._services.stopping:
            return _json(503, {"ready": False, "waiting_for": "the server is shutting down"})
        info = self._services.engine.info
        if info is None:
            waiting = "the engine, which loads its weights and warms up"
            return _json(503, {"ready": False, "waiting_for": waiting})
        return _json(200, {"ready": True, "model": info.name, "capacity": info.capacity})

    async def metrics(self, request: Request) -> Response:
        """Answer in Prometheus' text format."""
        return Response(self._services.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    def _engine_state(self) -> str:
        return "ready" if self._services.engine.info is not None else "starting"


def _json(status: int, body: dict[str, object]) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
