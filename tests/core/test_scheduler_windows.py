"""Layers with a window: what a long sequence holds, and what a rollback costs."""

import pytest
import torch
from tiny_model import append, generate, open_sequence, prompt, run, tiny_engine, tiny_model

from sensorium.core.api import AppendTokens, OpenSpan, Rollback, SequenceId, SpanId
from sensorium.core.block_pool import BlockPool
from sensorium.core.block_table import BlockTable
from sensorium.core.choosing import Chooser
from sensorium.core.engine import Engine
from sensorium.core.kv_cache import block_bytes
from sensorium.core.layer_groups import layer_groups
from sensorium.core.models.base import DecoderShape
from sensorium.core.scheduler import Scheduler
from sensorium.core.sequence import Sequence

ONE = SequenceId(1)
MILLION = 1 << 20
WINDOW, SLACK, CHUNK, BLOCK_SIZE = 2048, 256, 2048, 16
# Muse Spark: full attention at 1, 5, …, 61; widths don't matter here, only their ratio.
MUSE = DecoderShape(
    vocab_size=100,
    width=8,
    num_kv_heads=2,
    head_dim=4,
    max_positions=MILLION,
    windows=tuple(None if (61 - i) % 4 == 0 else WINDOW for i in range(62)),
)


def test_a_million_positions_take_what_the_formula_says() -> None:
    groups = layer_groups(MUSE.windows)
    assert [len(group.layers) for group in groups] == [16, 16, 14, 16]
    pool = BlockPool(80_000)
    scheduler = Scheduler(pool, block_size=BLOCK_SIZE, max_step_tokens=CHUNK, window_slack=SLACK)
    tables = [BlockTable(group.window, BLOCK_SIZE) for group in groups]
    sequence = Sequence(ONE, tables=tables, max_positions=MILLION, order=1)
    sequence.put(AppendTokens(sequence_id=ONE, span_id=SpanId(1), token_ids=(1,) * MILLION))
    sequence.settle(lambda sampling: Chooser(sampling=sampling))
    peak = 0
    while sequence.num_due:
        for item in scheduler.schedule([sequence], 0.0):
            peak = max(peak, pool.num_blocks - pool.num_free)
            scheduler.advance(item.sequence, item.count)
    held = pool.num_blocks - pool.num_free

    block = block_bytes(MUSE, BLOCK_SIZE, torch.float8_e4m3fn)
    row = 2 * MUSE.num_kv_heads * (MUSE.head_dim + 2)  # a scale of two bytes a vector
    full, windows = 16 * row * MILLION, 46 * row * WINDOW
    assert (full + windows) <= held * block <= (full + windows) * 1.02
    # A long prefill never holds more than its chunk beside that.
    assert peak * block <= (full + 46 * row * (WINDOW + SLACK + CHUNK)) * 1.02
    scheduler.release(sequence)
    assert pool.num_free == pool.num_blocks


def test_a_long_prompt_fits_where_only_full_layers_keep_it() -> None:
    num_positions = 180
    engine = tiny_engine(
        model=tiny_model(windows=(5, None, 5, 5)),
        num_blocks=45 + 4 * 3 * 2,
        max_step_tokens=8,
        window_slack=1,
    )
    assert engine.max_positions >= num_positions
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, num_positions))
    run(engine)
    assert engine.num_to_prefill(ONE) == 0


def _speak(engine: Engine, span: int, count: int) -> None:
    """A spoken turn: an opening, rows that are given as ids, an end."""
    append(engine, 1, span, (1, 2))
    engine.submit(OpenSpan(sequence_id=ONE, span_id=SpanId(span + 1)))
    engine.extend_span(ONE, SpanId(span + 1), prompt(span, count))
    engine.finish_span(ONE, SpanId(span + 1))
    run(engine)


@pytest.mark.parametrize("num_spoken", [3, 40])
def test_the_last_two_turns_can_be_taken_back_without_computing_anew(num_spoken: int) -> None:
    engine = tiny_engine(model=tiny_model(windows=(9, None)), window_slack=4, num_blocks=150)
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(9, 60))
    for span in (10, 20):
        _speak(engine, span, num_spoken)
    for span in (20, 10):
        engine.submit(Rollback(sequence_id=ONE, keep_through=SpanId(span - 1)))
        engine.step(0.0)
        assert engine.num_to_prefill(ONE) == 0


def test_a_rollback_further_back_is_computed_anew() -> None:
    engine = tiny_engine(model=tiny_model(windows=(9, None)), window_slack=4, num_blocks=150)
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(9, 170))
    run(engine)
    engine.submit(Rollback(sequence_id=ONE, keep_through=SpanId(1), position=100))
    engine.step(0.0)
    assert engine.num_to_prefill(ONE) == 100 - 64  # a step's worth of the whole has been done


def test_a_small_rollback_stays_within_the_slack() -> None:
    engine = tiny_engine(model=tiny_model(windows=(9, None)), window_slack=30, num_blocks=150)
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(9, 170))
    run(engine)
    engine.submit(Rollback(sequence_id=ONE, keep_through=SpanId(1), position=140))
    engine.step(0.0)
    assert engine.num_to_prefill(ONE) == 0


def test_a_generation_advances_in_every_step_of_a_long_prefill_beside_it() -> None:
    budget = 16
    engine = tiny_engine(
        model=tiny_model(windows=(9, None)), num_blocks=150, max_step_tokens=budget
    )
    for sequence in (1, 2):
        open_sequence(engine, sequence)
    append(engine, 1, 1, (1, 2, 3))
    generate(engine, 1, 2, max_tokens=100)
    engine.step(0.0)
    append(engine, 2, 1, prompt(1, 150))
    two, left = SequenceId(2), 150
    while left:
        events = engine.step(0.0)
        assert [event.sequence_id for event in events] == [ONE]
        assert 0 < left - engine.num_to_prefill(two) < budget
        left = engine.num_to_prefill(two)
