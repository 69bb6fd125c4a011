"""Runs a Muse checkpoint as serving does, one sequence in an engine, and keeps all it computes."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tiny_model import generate, ids_of, open_sequence, run
from torch import Tensor

from sensorium.core.api import OpenSpan, SequenceId, SpanId
from sensorium.core.batch import Batch
from sensorium.core.capture import EMBEDS, Capture
from sensorium.core.config import EngineConfig
from sensorium.core.engine import Engine
from sensorium.core.kv_cache import KVCache
from sensorium.core.models.muse_spark import MuseSpark
from sensorium.core.runner import Runner, pack
from sensorium.core.sources import read_config
from sensorium.core.weights import load_weights

CPU = torch.device("cpu")


class RecordingRunner(Runner):
    """A runner that also computes logits where nothing is sampled, and keeps them by position."""

    def __init__(self, decoder: MuseSpark, cache: KVCache) -> None:
        super().__init__(decoder, cache, dtype=decoder.embedding.dtype)
        self.capture = Capture(layers=(EMBEDS, *range(decoder.shape.num_layers)), routers=True)
        self.logits: dict[int, Tensor] = {}

    def run(self, batch: Batch, capture: Capture | None = None) -> Tensor:
        everywhere = replace(batch, sample_indices=torch.arange(len(batch.token_ids)))
        logits = super().run(everywhere, self.capture)
        self.logits |= dict(zip(batch.positions.tolist(), logits, strict=True))
        return logits[batch.sample_indices]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the decoder computed at T positions; captured tensors as `Capture` names them."""

    logits: Tensor
    """[T, V]"""
    captured: dict[str, Tensor]
    new_ids: list[int]
    """What it generated, the last of the T positions."""


def load_muse(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    residual_dtype: torch.dtype | None = torch.float32,
) -> MuseSpark:
    """Load a checkpoint for the CPU as `load_runner` does."""
    with torch.device("meta"):
        decoder = MuseSpark(read_config(folder), residual_dtype=residual_dtype)
    others = decoder.other_weight_names()
    names = decoder.weight_names()
    load_weights(decoder, names, folder, dtype=dtype, device=CPU, others=others)
    pack(decoder)
    return decoder


def observe(
    decoder: MuseSpark, golden: dict[str, Tensor], *, max_step_tokens: int = 256, num_new: int = 1
) -> Observed:
    """Feed the golden prompt, `max_step_tokens` at a time, and generate `num_new` ids greedily."""
    config = EngineConfig(block_size=4, max_step_tokens=max_step_tokens, window_slack=0)
    dtype = decoder.embedding.dtype
    cache = KVCache(decoder.shape, num_blocks=400, block_size=4, dtype=dtype, device=CPU)
    runner = RecordingRunner(decoder, cache)
    engine = Engine(runner, config)
    sequence_id = open_sequence(engine, 1)
    _append_prompt(engine, sequence_id, golden)
    generate(engine, sequence_id, 2, num_new)
    new_ids = ids_of(run(engine), sequence_id)
    return Observed(
        logits=torch.stack([logits for _, logits in sorted(runner.logits.items())]),
        captured=runner.capture.tensors(),
        new_ids=list(new_ids),
    )


def _append_prompt(engine: Engine, sequence_id: SequenceId, golden: dict[str, Tensor]) -> None:
    """Append the prompt as one span, its media rows in the place of their placeholders."""
    span_id = SpanId(1)
    engine.submit(OpenSpan(sequence_id=sequence_id, span_id=span_id))
    begin = 0
    ids = golden["input_ids"].tolist()
    for row, position in zip(golden["rows"], golden["row_positions"].tolist(), strict=True):
        if position > begin:
            engine.extend_span(sequence_id, span_id, tuple(ids[begin:position]))
        engine.extend_span(sequence_id, span_id, row[None])
        begin = position + 1
    engine.extend_span(sequence_id, span_id, tuple(ids[begin:]))
    engine.finish_span(sequence_id, span_id)
