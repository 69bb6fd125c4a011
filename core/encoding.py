"""The encoders that go with a decoder, and what stands around their rows."""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from sensorium.core.checkpoint import Checkpoint
from sensorium.core.config import ModelsConfig
from sensorium.core.errors import BadCheckpoint
from sensorium.core.sources import read_config, resolve
from sensorium.core.text.grammars import MediaMarks
from sensorium.core.text.prompt import load_prompt
from sensorium.encoders.base import Encoder, EncoderSources
from sensorium.encoders.registry import load_encoders

logger = logging.getLogger(__name__)


def open_encoders(
    models: ModelsConfig,
    decoder_dir: Path,
    dtype: torch.dtype,
    num_threads: int,
    modalities: Collection[str] | None = None,
) -> dict[str, Encoder[Any]]:
    """Load an encoder for each of the modalities that has one.

    Raises ModelNotFound for a model that was never pulled, BadCheckpoint for what can't be read.
    """
    cache_dir = Path(models.cache_dir).expanduser() if models.cache_dir else None
    names = {"speech": models.speech, "pictures": models.pictures}
    sources = EncoderSources(
        config=read_config(decoder_dir),
        folder=decoder_dir,
        tensor=Checkpoint(decoder_dir).tensor,
        model=lambda role: resolve(names[role], cache_dir) if names.get(role) else None,
        threads=num_threads,
        dtype=dtype,
    )
    try:
        return load_encoders(sources, modalities)
    except (RuntimeError, ValueError, OSError, KeyError) as error:
        raise BadCheckpoint(f"an encoder can't be loaded: {error}") from error


def marks_around(decoder_dir: Path, encoders: dict[str, Encoder[Any]]) -> dict[str, MediaMarks]:
    """Return what stands around the rows of each modality; drop encoders that would lack it.

    A published tokenizer had reserved names in place of the sound marks: without them the model
    couldn't know what the rows are. A modality that the grammar has no marks for does without.
    """
    marks: dict[str, MediaMarks] = {}
    with_rows = [m for m, encoder in encoders.items() if encoder.intake.gives_rows]
    prompt = load_prompt(decoder_dir) if with_rows else None
    for modality in with_rows:
        assert prompt is not None, "there is one for every modality with rows"
        try:
            found = prompt.media_marks(modality)
        except BadCheckpoint as error:
            logger.warning("no %s will be taken: %s", modality, error)
            del encoders[modality]
        else:
            if found is not None:
                marks[modality] = found
    return marks
