"""`GET /v1/models` and `/v1/models/{id}`: what is served, under which names."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sensorium.core.api import ModelInfo
from sensorium.gateway.errors import CapacityError, PeerError
from sensorium.gateway.services import Services

DEFAULT = "default"
"""The name that always means the configured model."""


class ModelsEndpoint:
    """Lists the one model; it has two names."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list(self, request: Request) -> Response:
        """Return the models; none while the engine starts."""
        info = self._services.engine.info
        names = [DEFAULT, info.name] if info else []
        cards = [self._card(name, info) for name in names if info]
        return _json({"object": "list", "data": cards})

    async def get(self, request: Request) -> Response:
        """Return one model; raises PeerError for an unknown name."""
        name = request.path_params["name"]
        return _json(self._card(name, check_model(self._services, name)))

    def _card(self, name: str, info: ModelInfo) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "sensorium",
            "root": info.name,
            "max_model_len": info.max_positions,
            "dtype": info.dtype,
            "speech_encoder": info.speech_encoder,
            "speech_languages": list(info.speech_languages),
        }


def check_model(services: Services, name: str) -> ModelInfo:
    """Return what serves `name`; raises PeerError for a name that nothing here has."""
    info = services.engine.info
    if info is None:
        raise CapacityError("server_busy", "The model is still starting; try again later.")
    if name not in (DEFAULT, info.name):
        raise PeerError(
            "model_not_found",
            f"There is no model {name[:100]!r} here; known are {DEFAULT} and {info.name}.",
            param="model",
        )
    return info


def _json(body: dict[str, object]) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
