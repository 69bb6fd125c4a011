"""Modalities: the name in `OpenSpan.modality` → classes that may encode it, imported on use.

A class has `load(sources: EncoderSources) -> Encoder | None`: None if what it needs isn't there.
The first that can be loaded is the one that serves.
"""

from collections.abc import Collection
from importlib import import_module
from typing import Any

from sensorium.encoders.base import Encoder, EncoderSources

ENCODERS = {
    "audio": ("sensorium.encoders.muse_audio:MuseAudio", "sensorium.encoders.speech:SpeechEncoder"),
    "image": (
        "sensorium.encoders.image:MuseImage",
        "sensorium.encoders.picture_words:PictureWords",
    ),
    "video": ("sensorium.encoders.video:MuseVideo", "sensorium.encoders.video_words:VideoWords"),
}


def load_encoders(
    sources: EncoderSources, modalities: Collection[str] | None = None
) -> dict[str, Encoder[Any]]:
    """Return the encoder of every modality, or of those named, that has one.

    What a class raises for files that it should be able to read, and can't, passes through.
    """
    loaded: dict[str, Encoder[Any]] = {}
    for modality in ENCODERS if modalities is None else modalities:
        for name in ENCODERS[modality]:
            encoder = _class(name).load(sources)
            if encoder is not None:
                loaded[modality] = encoder
                break
    return loaded


def _class(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
