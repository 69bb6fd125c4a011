"""The worked examples of docs/design/slots.md and docs/design/layer-groups.md, number by number."""

from typing import NoReturn

import torch

from sensorium.core.api import AppendTokens, OpenSpan, SamplingParams, SequenceId, SpanId
from sensorium.core.batch import Batch, build_batch
from sensorium.core.block_pool import BlockPool
from sensorium.core.block_table import BlockTable
from sensorium.core.layer_groups import layer_groups
from sensorium.core.scheduler import Scheduler
from sensorium.core.sequence import Sequence

TINY_MUSE = (8, None, 8, 8, 8, None)
SPAN = SpanId(1)


class Example:
    """One sequence over a pool of 30 blocks of 4, in steps of up to 16 positions."""

    def __init__(self, windows: tuple[int | None, ...] = TINY_MUSE) -> None:
        self.pool = BlockPool(30)
        self.scheduler = Scheduler(self.pool, block_size=4, max_step_tokens=16, window_slack=4)
        self._groups = layer_groups(windows)
        self.sequence = self.new_sequence(1)

    def new_sequence(self, number: int) -> Sequence:
        tables = [BlockTable(group.window, 4) for group in self._groups]
        return Sequence(SequenceId(number), tables=tables, max_positions=100, order=number)

    def prompt(self, length: int) -> None:
        ids = tuple(range(length))
        self.sequence.put(AppendTokens(sequence_id=SequenceId(1), span_id=SPAN, token_ids=ids))
        self.sequence.settle(generate_nothing)

    def step(self) -> Batch:
        scheduled = self.scheduler.schedule([self.sequence], 0.0)
        batch = build_batch(
            scheduled, block_size=4, dtype=torch.float32, device=torch.device("cpu")
        )
        self.scheduler.advance(self.sequence, scheduled[0].count)
        return batch

    @property
    def blocks(self) -> list[list[int]]:
        return [table.blocks for table in self.sequence.tables]


def generate_nothing(sampling: SamplingParams) -> NoReturn:
    raise AssertionError


def prefilled() -> Example:
    """Return the example of layer-groups.md after positions 0 … 26."""
    example = Example()
    example.prompt(26)
    example.step()
    example.step()
    example.sequence.token_ids.append(7)
    example.step()
    return example


def test_slots_are_filled_as_rows_come() -> None:
    example = Example((None,))
    sequence, rows = example.sequence, torch.arange(10.0).view(5, 2)
    sequence.put(OpenSpan(sequence_id=SequenceId(1), span_id=SPAN))
    batches = []
    for contents in [((5, 9), rows[:2]), (rows[2:3],), (rows[3:], (7, 3))]:
        for content in contents:
            sequence.extend(SPAN, content)
        sequence.settle(generate_nothing)
        batches.append(example.step())
    assert sequence.token_ids == [5, 9, -1, -1, -1, -1, -1, 7, 3]
    assert sorted(sequence.rows) == [2, 3, 4, 5, 6]
    assert [b.token_ids.tolist() for b in batches] == [[5, 9, 0, 0], [0], [0, 0, 7, 3]]
    assert [b.slots.tolist() for b in batches] == [[2, 3], [0], [0, 1]]
    filled = [b.rows for b in batches if b.rows is not None]
    assert torch.equal(torch.cat(filled), rows)
    assert [len(part) for part in filled] == [2, 1, 2]
    assert [b.positions.tolist() for b in batches] == [[0, 1, 2, 3], [4], [5, 6, 7, 8]]


def test_window_groups_give_blocks_up_between_steps() -> None:
    assert [group.layers for group in layer_groups(TINY_MUSE)] == [(0, 2), (3, 4), (1, 5)]
    example = Example()
    example.prompt(26)
    example.step()
    assert example.blocks == [[0, 2, 3, 4], [0, 6, 7, 8], [9, 10, 11, 12]]
    example.step()
    window_groups = [[0, 0, 0, 4, 5, 1, 13], [0, 0, 0, 8, 14, 15, 16]]
    assert example.blocks == [*window_groups, [9, 10, 11, 12, 17, 18, 19]]
    assert example.pool.num_free == 15
    example.sequence.token_ids.append(7)
    first, second, full = example.step().contexts
    assert [c.slot_mapping.tolist() for c in (first, second, full)] == [[54], [66], [78]]
    tables = [context.decodes[0].block_tables.tolist() for context in (first, second, full)]
    assert tables == [[[5, 1, 13]], [[14, 15, 16]], [[9, 10, 11, 12, 17, 18, 19]]]
    masks = [context.decodes[0].mask[0].isfinite() for context in (first, second, full)]
    seen = [mask.nonzero().flatten().tolist() for mask in masks]
    assert seen == [[*range(3, 11)], [*range(3, 11)], [*range(27)]]


def test_slack_is_how_far_a_rollback_reaches() -> None:
    for position, goes_on_at in ((23, 23), (22, 0)):
        example = prefilled()
        example.sequence.roll_back(SPAN, position)
        example.scheduler.settle(example.sequence)
        assert example.sequence.num_computed == goes_on_at


def test_fork_shares_up_to_a_block_border() -> None:
    example = prefilled()
    child = example.new_sequence(2)
    example.sequence.fork(child, None)
    num_free = example.pool.num_free
    example.scheduler.share(example.sequence, child)
    assert child.num_computed == 24
    assert example.pool.num_free == num_free


def test_window_layers_of_the_release_hold_161_blocks() -> None:
    """Window, slack, a step, and the block in which the window begins, for any length."""
    pool = BlockPool(2 * 4096)
    scheduler = Scheduler(pool, block_size=16, max_step_tokens=256, window_slack=256)
    tables = [BlockTable(2048, 16), BlockTable(None, 16)]
    sequence = Sequence(SequenceId(1), tables=tables, max_positions=1 << 20, order=1)
    ids = (0,) * 20_007
    sequence.put(AppendTokens(sequence_id=SequenceId(1), span_id=SPAN, token_ids=ids))
    sequence.settle(generate_nothing)
    most = 0
    while sequence.num_due:
        [scheduled] = scheduler.schedule([sequence], 0.0)
        most = max(most, len(tables[0].held))
        scheduler.advance(sequence, scheduled.count)
    assert 160 <= most <= 161
