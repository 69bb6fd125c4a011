"""Modalities by name."""

import pytest

from sensorium.encoders.registry import ENCODERS, encoder_class


@pytest.mark.parametrize("modality", ENCODERS)
def test_every_registered_encoder_exists(modality: str) -> None:
    for method in ("open", "ready", "push", "flush"):
        assert callable(getattr(encoder_class(modality), method))


def test_an_unknown_modality_is_answered_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"smell.*audio"):
        encoder_class("smell")
