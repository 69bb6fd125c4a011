"""Vision encoders of a tiny Muse checkpoint, pictures for them, and transformers beside them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from muse_checkpoint import cached_tiny_muse
from torch import Tensor
from transformers import MuseSparkForConditionalGeneration

from sensorium.core.checkpoint import Checkpoint
from sensorium.core.sources import read_config
from sensorium.encoders.base import EncoderSources
from sensorium.encoders.media import Pixels
from sensorium.encoders.vit import Group

CELL_PX = 28


def vision_sources(
    folder: Path | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    tensor: Callable[[str], Tensor] | None = None,
    dtype: torch.dtype = torch.float32,
) -> EncoderSources:
    """Return what encoders are loaded from; the tiny checkpoint's, where nothing else is said."""
    folder = folder or cached_tiny_muse()
    return EncoderSources(
        config=config or read_config(folder),
        folder=folder,
        tensor=tensor or Checkpoint(folder).tensor,
        model=lambda _: None,
        threads=1,
        dtype=dtype,
    )


def noise(rows: int, columns: int, seed: int) -> Pixels:
    """Return a picture of `rows` × `columns` cells, no two pixels alike on purpose."""
    shape = (CELL_PX * rows, CELL_PX * columns, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def still(pixels: Pixels) -> Group:
    """Return the group of frames that a picture is."""
    return np.stack([pixels, pixels])


def reference_rows(groups: Sequence[Group]) -> list[Tensor]:
    """Return what transformers makes of groups of frames, all in one call."""
    grids = [[1, len(group[0]) // 14, group.shape[2] // 14] for group in groups]
    patches = []
    for group, (_, rows, columns) in zip(groups, grids, strict=True):
        pixels = (torch.from_numpy(group).double() / 127.5 - 1).float()  # [2, H, W, 3]
        for row in range(rows):
            for column in range(columns):
                patch = pixels[:, 14 * row : 14 * row + 14, 14 * column : 14 * column + 14]
                patches.append(patch.permute(0, 3, 1, 2).flatten())
    with torch.no_grad():
        found = _reference().model.get_image_features(torch.stack(patches), torch.tensor(grids))
    return list(found.pooler_output)


@functools.cache
def _reference() -> Any:
    return MuseSparkForConditionalGeneration.from_pretrained(
        cached_tiny_muse(), dtype=torch.float32, attn_implementation="eager"
    )
