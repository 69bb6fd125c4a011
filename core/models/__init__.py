"""Model families: the `model_type` of a config.json → "module:Class", imported on use."""

from importlib import import_module
from typing import Any

from sensorium.core.errors import CoreError

FAMILIES = {
    "llama": "sensorium.core.models.llama:Llama",
    "muse_spark": "sensorium.core.models.muse_spark:MuseSpark",
}


def family(model_type: str) -> Any:
    """Return the decoder class of a family. Raises CoreError that lists the known ones."""
    if model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise CoreError(f"unknown model family {model_type!r}; known are: {known}")
    module, name = FAMILIES[model_type].split(":")
    return getattr(import_module(module), name)
