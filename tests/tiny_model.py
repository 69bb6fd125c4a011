"""A tiny random decoder in float32, an engine around it, and shorthand to drive it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from sensorium.core.api import (
    AppendTokens,
    EngineEvent,
    Generate,
    Generated,
    OpenSequence,
    SamplingParams,
    SequenceId,
    SpanId,
)
from sensorium.core.config import EngineConfig
from sensorium.core.engine import Engine
from sensorium.core.kv_cache import KVCache
from sensorium.core.models.llama import Llama
from sensorium.core.runner import Runner

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 200,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
}
WIDTH = 32
MAX_POSITIONS = 200

torch.set_num_threads(1)  # sums this small only lose by being shared among cores


def tiny_model(seed: int = 0, windows: tuple[int | None, ...] = (None, None)) -> Llama:
    """Make a decoder with random weights; the same seed gives the same weights.

    `windows` has an entry per layer and limits what the layer sees.
    """
    model = Llama({**CONFIG, "num_hidden_layers": len(windows)})
    model.shape = replace(model.shape, windows=windows)
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def checkpoint(model: Llama) -> dict[str, torch.Tensor]:
    """Name and split a model's parameters as the checkpoint of a `CONFIG` does."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parts in model.weight_names().items():
        parameter = model.get_parameter(name)
        sizes = {3: [48, 16, 16], 2: [48, 48]}.get(len(parts), [len(parameter)])
        pieces = torch.split(parameter, sizes)
        tensors.update({p: t.contiguous() for p, t in zip(parts, pieces, strict=True)})
    return tensors


def tiny_engine(
    seed: int = 0, *, num_blocks: int = 100, model: Llama | None = None, **config: Any
) -> Engine:
    """Make an engine over `model`, or over `tiny_model(seed)`; blocks hold 4 positions."""
    settings = EngineConfig(**{"block_size": 4, "max_step_tokens": 64, **config})
    decoder = model or tiny_model(seed)
    cache = KVCache(
        decoder.shape,
        num_blocks=num_blocks,
        block_size=settings.block_size,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return Engine(Runner(decoder, cache), settings, seed=seed)


def run(engine: Engine, *, max_steps: int = 2_000) -> list[EngineEvent]:
    """Step until nothing is left to do; return all events."""
    events: list[EngineEvent] = []
    while engine.has_work():
        max_steps -= 1
        assert max_steps, "the engine doesn't come to rest"
        events += engine.step(0.0)
    return events


def ids_of(events: Iterable[EngineEvent], sequence_id: int) -> tuple[int, ...]:
    """Join the ids that were generated for a sequence."""
    return tuple(
        token_id
        for event in events
        if isinstance(event, Generated) and event.sequence_id == sequence_id
        for token_id in event.token_ids
    )


def prompt(seed: int, length: int) -> tuple[int, ...]:
    """Draw a prompt."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(97, (length,), generator=generator).tolist())


def open_sequence(engine: Engine, sequence_id: int) -> SequenceId:
    """Create a sequence."""
    engine.submit(OpenSequence(sequence_id=SequenceId(sequence_id)))
    return SequenceId(sequence_id)


def append(engine: Engine, sequence_id: int, span_id: int, token_ids: tuple[int, ...]) -> None:
    """Append tokens."""
    engine.submit(
        AppendTokens(
            sequence_id=SequenceId(sequence_id), span_id=SpanId(span_id), token_ids=token_ids
        )
    )


def generate(
    engine: Engine, sequence_id: int, span_id: int, max_tokens: int = 8, **sampling: Any
) -> None:
    """Ask for a generation."""
    engine.submit(
        Generate(
            sequence_id=SequenceId(sequence_id),
            span_id=SpanId(span_id),
            sampling=SamplingParams(max_tokens=max_tokens, **sampling),
        )
    )


def answer(token_ids: tuple[int, ...], max_tokens: int = 8, **config: Any) -> tuple[int, ...]:
    """What a fresh engine generates after `token_ids`: the reference of every equality."""
    engine = tiny_engine(**config)
    open_sequence(engine, 1)
    append(engine, 1, 1, token_ids)
    generate(engine, 1, 2, max_tokens)
    return ids_of(run(engine), 1)
