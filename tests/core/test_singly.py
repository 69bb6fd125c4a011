"""Batch-invariant mode: the same bits alone, in any batch, in any chunks, after preemption."""

import random
from typing import Any

import pytest
import torch
from muse_checkpoint import cached_tiny_muse
from muse_rig import load_muse
from tiny_model import (
    append,
    generate,
    open_sequence,
    prompt,
    run,
    tiny_model,
)

from sensorium.core.api import EngineEvent, Generated, TokenLogprobs
from sensorium.core.config import EngineConfig
from sensorium.core.engine import Engine
from sensorium.core.kv_cache import KVCache
from sensorium.core.models.llama import Llama
from sensorium.core.models.muse_spark import MuseSpark
from sensorium.core.runner import Runner

LENGTHS = (3, 37, 18, 61, 1)
NEW = 7


def engine(
    model: Llama | MuseSpark, *, num_blocks: int = 200, invariant: bool = True, **config: Any
) -> Engine:
    settings = EngineConfig(block_size=4, batch_invariant=invariant, window_slack=4, **config)
    cache = KVCache(
        model.shape,
        num_blocks=num_blocks,
        block_size=4,
        dtype=model.embedding.dtype,
        device=torch.device("cpu"),
    )
    return Engine(Runner(model, cache), settings, seed=0)


def ask(engine: Engine, sequence_id: int) -> None:
    """Let a sequence answer its prompt, with the log probabilities of everything."""
    open_sequence(engine, sequence_id)
    append(engine, sequence_id, 1, prompt(sequence_id, LENGTHS[sequence_id]))
    temperature = sequence_id % 2
    generate(
        engine, sequence_id, 2, NEW, num_logprobs=20, temperature=temperature, seed=sequence_id
    )


def written(events: list[EngineEvent], sequence_id: int) -> list[TokenLogprobs]:
    """The log probabilities of what a sequence wrote; floats, compared to the last bit."""
    return [
        logprobs
        for event in events
        if isinstance(event, Generated) and event.sequence_id == sequence_id
        for logprobs in event.logprobs
    ]


def alone(model: Llama | MuseSpark, sequence_id: int) -> list[TokenLogprobs]:
    """What a sequence writes in an engine of its own, its prompt in one piece."""
    subject = engine(model, max_step_tokens=128)
    ask(subject, sequence_id)
    return written(run(subject), sequence_id)


def together(model: Llama | MuseSpark, schedule: int, **config: Any) -> list[EngineEvent]:
    """Run all sequences at once; they come at random times and in random order."""
    subject = engine(model, **config)
    order = random.Random(schedule)
    events: list[EngineEvent] = []
    for sequence_id in order.sample(range(len(LENGTHS)), len(LENGTHS)):
        ask(subject, sequence_id)
        for _ in range(order.randrange(4)):
            events += subject.step(0.0)
    return events + run(subject)


@pytest.fixture(params=["llama in float32", "llama in bfloat16", "muse"], scope="module")
def model(request: pytest.FixtureRequest) -> Llama | MuseSpark:
    if request.param == "muse":  # a mixture of experts: neighbours share matrix products
        return load_muse(cached_tiny_muse())
    dtype = torch.bfloat16 if "bfloat16" in request.param else torch.float32
    return tiny_model(windows=(None, 6)).to(dtype)


@pytest.fixture(scope="module")
def expected(model: Llama | MuseSpark) -> list[list[TokenLogprobs]]:
    return [alone(model, sequence_id) for sequence_id in range(len(LENGTHS))]


@pytest.mark.parametrize("schedule", range(3))
def test_a_sequence_computes_the_same_bits_in_any_company(
    model: Llama | MuseSpark, expected: list[list[TokenLogprobs]], schedule: int
) -> None:
    events = together(model, schedule, max_step_tokens=(5, 16, 200)[schedule])
    assert all(len(logprobs) == NEW for logprobs in expected)
    assert [written(events, i) for i in range(len(LENGTHS))] == expected


def test_a_sequence_that_lost_its_cache_computes_the_same_bits_again(
    model: Llama | MuseSpark, expected: list[list[TokenLogprobs]]
) -> None:
    events = together(model, 3, max_step_tokens=16, num_blocks=40)
    assert [written(events, i) for i in range(len(LENGTHS))] == expected


def test_without_the_mode_company_shows_in_the_last_bits() -> None:
    """What the mode is for; if this ever fails, torch has become invariant by itself."""
    model = tiny_model(windows=(None, 6))
    events = together(model, 1, max_step_tokens=16, invariant=False)
    assert any(written(events, i) != alone(model, i) for i in range(len(LENGTHS)))
