"""Muse's audio encoder on the tiny checkpoint, fed in pieces, and what transformers makes of it."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import soxr
import torch
from clips import RATE_HZ as CLIP_RATE_HZ
from clips import load_clip
from muse_checkpoint import RATE_HZ, Oracle, cached_tiny_muse
from torch import Tensor
from transformers import MuseSparkForConditionalGeneration

from sensorium.core.checkpoint import Checkpoint
from sensorium.core.sources import read_config
from sensorium.encoders.base import ClipHints, EncoderSources, Output
from sensorium.encoders.media import MediaFrame, Pts, Samples
from sensorium.encoders.muse_audio import MuseAudio, MuseClip

HOP = 1920


def sources(**changed: Any) -> EncoderSources:
    """Return what the encoders of the tiny checkpoint are loaded from, with some of it changed."""
    folder = cached_tiny_muse()
    given: dict[str, Any] = {
        "config": read_config(folder),
        "folder": folder,
        "tensor": Checkpoint(folder).tensor,
        "model": lambda role: None,
        "threads": 1,
        "dtype": torch.float32,
    }
    return EncoderSources(**given | changed)


@functools.cache
def tiny_encoder() -> MuseAudio:
    """Return the encoder of the tiny checkpoint, in float32."""
    encoder = MuseAudio.load(sources())
    assert encoder is not None
    return encoder


@functools.cache
def _oracle() -> Oracle:
    return MuseSparkForConditionalGeneration.from_pretrained(
        cached_tiny_muse(), dtype=torch.float32, attn_implementation="eager"
    )


def by_transformers(samples: Samples) -> Tensor:
    """[num_samples] → [n, D], the whole clip at once."""
    padded = torch.from_numpy(np.pad(samples, (0, -len(samples) % HOP)))[None]
    with torch.no_grad():
        rows: Tensor = _oracle().model.get_audio_features(padded, torch.ones_like(padded).int())[1]
    return rows.view(-1, rows.shape[-1])


@functools.cache
def recording(name: str) -> Samples:
    """Read a recording of tests/data at 24 kHz."""
    return np.asarray(soxr.resample(load_clip(name), CLIP_RATE_HZ, RATE_HZ), np.float32)


def frame(samples: Samples, start: int = 0) -> MediaFrame:
    """Wrap samples that begin `start` samples after their clip."""
    return MediaFrame(pts=Pts(start), rate_hz=RATE_HZ, data=samples)


def frames(samples: Samples, sizes: Sequence[int]) -> Iterator[MediaFrame]:
    """Cut a clip into frames of these sizes, and one of what is left."""
    begin = 0
    for size in sizes:
        if begin < len(samples):
            yield frame(samples[begin : begin + size], begin)
            begin += size
    if begin < len(samples):
        yield frame(samples[begin:], begin)


def rows_of(outputs: Sequence[Output]) -> Tensor:
    """Return all rows of one clip's outputs, [n, D]; their times must follow each other."""
    made = [rows for output in outputs for rows in output.rows]
    num = 0
    for rows in made:
        assert rows.step_s == 0.08
        assert abs(rows.start_s - num * 0.08) < 1e-9
        num += len(rows.values)
    return torch.cat([rows.values for rows in made]) if made else torch.zeros(0, 64)


def heard(samples: Samples, sizes: Sequence[int] = (), clip: MuseClip | None = None) -> Tensor:
    """Push a clip alone, cut into frames of these sizes, and end it: [n, D]."""
    encoder = tiny_encoder()
    clip = clip or encoder.open(ClipHints())
    pushed = [encoder.push([(part,)], [clip])[0] for part in frames(samples, sizes)]
    return rows_of([*pushed, *encoder.flush([clip])])
