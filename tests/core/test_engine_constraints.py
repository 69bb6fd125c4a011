"""Constrained generations in the engine, beside others and under pressure."""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import CONFIG, append, generate, ids_of, open_sequence, prompt, run
from tiny_text import write_tokenizer

from sensorium.core.api import Constraint, EngineEvent, Failed, Generated, TurnEnded
from sensorium.core.config import EngineConfig
from sensorium.core.engine import Engine
from sensorium.core.grammar import Grammars
from sensorium.core.kv_cache import KVCache
from sensorium.core.models.llama import Llama
from sensorium.core.runner import Runner
from sensorium.core.text.tokenizer import Tokenizer

VOCAB = 260
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["a"],
        "additionalProperties": False,
    }
)
CONSTRAINT = Constraint(kind="json_schema", grammar=SCHEMA)
STOP = 258


@functools.cache
def tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        return Tokenizer(Path(folder))


@functools.cache
def model() -> Llama:
    model = Llama({**CONFIG, "vocab_size": VOCAB})
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model


def new_engine(*, num_blocks: int = 200, constrained: bool = True) -> Engine:
    cache = KVCache(
        model().shape,
        num_blocks=num_blocks,
        block_size=4,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    return Engine(
        Runner(model(), cache),
        EngineConfig(block_size=4, max_step_tokens=32),
        seed=0,
        grammars=Grammars(tokenizer(), VOCAB) if constrained else None,
    )


def ask(engine: Engine, sequence_id: int, constraint: Constraint | None, **sampling: Any) -> None:
    open_sequence(engine, sequence_id)
    append(engine, sequence_id, 1, prompt(sequence_id, 10))
    generate(
        engine,
        sequence_id,
        2,
        **{"max_tokens": 90, "temperature": 1.0, "seed": sequence_id, **sampling},
        stop_token_ids=(STOP,),
        constraint=constraint,
    )


def check(events: list[EngineEvent], sequence_id: int) -> None:
    """Assert that a sequence wrote JSON that fits SCHEMA, and stopped there."""
    value = json.loads(tokenizer().decode(ids_of(events, sequence_id)))
    assert value.keys() == {"a"}
    assert type(value["a"]) is int
    assert 0 <= value["a"] <= 99
    (ended,) = (e for e in events if isinstance(e, TurnEnded) and e.sequence_id == sequence_id)
    assert ended.reason == "stop"


def test_constrained_answers_fit_and_leave_their_neighbours_alone() -> None:
    alone = new_engine()
    ask(alone, 7, None, num_logprobs=1)
    expected = [e for e in run(alone) if isinstance(e, Generated)]
    engine = new_engine()
    for sequence_id in range(1, 7):
        ask(engine, sequence_id, CONSTRAINT)
    ask(engine, 7, None, num_logprobs=1)
    ask(engine, 8, CONSTRAINT, temperature=0.0)
    events = run(engine)
    for sequence_id in (*range(1, 7), 8):
        check(events, sequence_id)
    assert ids_of(events, 7) == tuple(e.token_ids[0] for e in expected)
    assert all(len(e.logprobs) == 1 for e in expected)


def test_a_constrained_answer_survives_the_loss_of_its_cache() -> None:
    roomy, tight = new_engine(), new_engine(num_blocks=12)
    for engine in (roomy, tight):
        for sequence_id in range(1, 4):
            ask(engine, sequence_id, CONSTRAINT)
    expected, events = run(roomy), run(tight)
    for sequence_id in range(1, 4):
        check(events, sequence_id)
        assert ids_of(events, sequence_id) == ids_of(expected, sequence_id)


def test_a_constrained_answer_is_cut_at_max_tokens_alone() -> None:
    engine = new_engine()
    ask(engine, 1, CONSTRAINT, max_tokens=3)
    events = run(engine)
    assert len(ids_of(events, 1)) == 3
    assert [e.reason for e in events if isinstance(e, TurnEnded)] == ["length"]


@pytest.mark.parametrize(
    ("engine", "constraint", "reason"),
    [
        (new_engine(), Constraint(kind="json_schema", grammar='{"type": "foo"}'), "foo"),
        (new_engine(), Constraint(kind="json_schema", grammar="{"), "JSON"),
        (new_engine(constrained=False), CONSTRAINT, "no tokenizer"),
    ],
)
def test_a_bad_constraint_ends_its_sequence_alone(
    engine: Engine, constraint: Constraint, reason: str
) -> None:
    ask(engine, 1, constraint)
    ask(engine, 2, None)
    events = run(engine)
    (failed,) = (e for e in events if isinstance(e, Failed))
    assert (failed.sequence_id, failed.code) == (1, "bad_request")
    assert reason in failed.message
    assert ids_of(events, 1) == ()
    assert len(ids_of(events, 2)) > 0
    assert engine.stats().num_sequences == 1
