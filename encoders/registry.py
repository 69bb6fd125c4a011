"""Modalities: the name in `OpenSpan.modality` → "module:Class", imported on use."""

from importlib import import_module
from typing import Any

ENCODERS = {
    "audio": "sensorium.encoders.speech:SpeechEncoder",
}


def encoder_class(modality: str) -> Any:
    """Return the encoder class of a modality. Raises KeyError that lists the known ones."""
    if modality not in ENCODERS:
        raise KeyError(f"unknown modality {modality!r}; known are: {', '.join(sorted(ENCODERS))}")
    module, name = ENCODERS[modality].split(":")
    return getattr(import_module(module), name)
