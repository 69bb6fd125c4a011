"""Modalities and the classes that encode them."""

from importlib import import_module

import pytest

from sensorium.encoders.registry import ENCODERS


@pytest.mark.parametrize("name", [name for names in ENCODERS.values() for name in names])
def test_every_registered_encoder_exists(name: str) -> None:
    module, _, attribute = name.partition(":")
    encoder = getattr(import_module(module), attribute)
    for method in ("load", "open", "ready", "push", "anticipate", "flush"):
        assert callable(getattr(encoder, method))
