from sensorium.core.api import AppendTokens, Generate, SequenceId, SpanId
from sensorium.core.block_pool import BlockPool
from sensorium.core.block_table import BlockTable
from sensorium.core.choosing import Chooser
from sensorium.core.scheduler import Scheduled, Scheduler
from sensorium.core.sequence import Sequence


def _sequence(order: int, length: int, *, computed: int = 0, generates: bool = False) -> Sequence:
    tables = [BlockTable(None, 4)]
    sequence = Sequence(SequenceId(order), tables=tables, max_positions=10_000, order=order)
    sequence.put(
        AppendTokens(sequence_id=SequenceId(order), span_id=SpanId(1), token_ids=(1,) * length)
    )
    if generates:
        sequence.put(Generate(sequence_id=SequenceId(order), span_id=SpanId(2)))
    sequence.settle(lambda sampling: Chooser(sampling=sampling))
    sequence.num_computed = computed
    return sequence


def _scheduler(num_blocks: int = 100, budget: int = 16) -> tuple[Scheduler, BlockPool]:
    pool = BlockPool(num_blocks)
    return Scheduler(pool, block_size=4, max_step_tokens=budget, window_slack=8), pool


def _counts(scheduled: list[Scheduled]) -> dict[int, int]:
    return {item.sequence.order: item.count for item in scheduled}


def _compute(scheduled: list[Scheduled]) -> None:
    for item in scheduled:
        item.sequence.num_computed += item.count


def test_single_positions_come_first_and_prefill_gets_the_rest() -> None:
    scheduler, _ = _scheduler()
    sequences = [_sequence(1, 40), _sequence(2, 5, computed=4), _sequence(3, 9, computed=8)]
    scheduled = scheduler.schedule(sequences, 0.0)
    assert [item.sequence.order for item in scheduled] == [2, 3, 1]
    assert _counts(scheduled) == {1: 14, 2: 1, 3: 1}


def test_short_prefill_is_done_at_once_beside_long_ones() -> None:
    scheduler, _ = _scheduler()
    sequences = [_sequence(1, 500), _sequence(2, 3), _sequence(3, 500)]
    assert _counts(scheduler.schedule(sequences, 0.0)) == {1: 7, 2: 3, 3: 6}


def test_only_the_last_chunk_of_a_prompt_samples() -> None:
    scheduler, _ = _scheduler()
    sequence = _sequence(1, 20, generates=True)
    flags = []
    for _ in range(2):
        scheduled = scheduler.schedule([sequence], 0.0)
        flags += [item.samples for item in scheduled]
        _compute(scheduled)
    assert flags == [False, True]


def test_nobody_starves_when_generations_alone_exceed_the_budget() -> None:
    scheduler, _ = _scheduler(budget=8)
    sequences = [_sequence(i, 5, computed=4) for i in range(20)] + [_sequence(20, 40)]
    served: dict[int, int] = {}
    for _ in range(20):
        counts = _counts(scheduler.schedule(sequences, 0.0))
        assert sum(counts.values()) <= 8
        for order, count in counts.items():
            served[order] = served.get(order, 0) + count
    assert min(served.get(i, 0) for i in range(20)) >= 5
    assert served[20] >= 20


def test_waiting_prefills_take_turns_when_there_are_too_many() -> None:
    scheduler, _ = _scheduler(budget=8)
    sequences = [_sequence(i, 100) for i in range(6)]
    for _ in range(3):
        _compute(scheduler.schedule(sequences, 0.0))
    assert [s.num_computed for s in sequences] == [4] * 6


def test_a_prefill_behind_a_long_context_takes_less_while_others_generate() -> None:
    scheduler, _ = _scheduler(num_blocks=10_000, budget=64)
    long, generating = _sequence(1, 9_000, computed=2_048), _sequence(2, 5, computed=4)
    assert _counts(scheduler.schedule([long], 0.0)) == {1: 64}
    assert _counts(scheduler.schedule([long, generating], 0.0)) == {1: 32, 2: 1}
    long.num_computed = 8_900  # a block of 4 is read at any length
    scheduler, _ = _scheduler(num_blocks=10_000, budget=16)
    assert _counts(scheduler.schedule([long, generating], 0.0)) == {1: 4, 2: 1}


def test_a_few_long_prompts_are_read_in_large_pieces_and_short_ones_beside_them() -> None:
    scheduler, _ = _scheduler(num_blocks=1000, budget=64)
    sequences = [_sequence(i, 500) for i in range(8)] + [_sequence(i, 3) for i in (8, 9)]
    counts = _counts(scheduler.schedule(sequences, 0.0))
    assert counts == {0: 15, 1: 15, 2: 14, 3: 14, 8: 3, 9: 3}
    assert set(_counts(scheduler.schedule(sequences[:8], 0.0))) == {4, 5, 6, 7}


def test_longest_unused_idle_sequence_loses_its_blocks_first() -> None:
    scheduler, pool = _scheduler(num_blocks=6)
    first, second = _sequence(1, 8), _sequence(2, 8)
    _compute(scheduler.schedule([second], 1.0))
    _compute(scheduler.schedule([first], 2.0))
    newcomer = _sequence(3, 12)
    scheduler.schedule([first, second, newcomer], 3.0)
    assert (first.num_computed, second.num_computed) == (8, 0)
    assert second.dormant
    assert pool.num_free == 1


def test_working_sequence_yields_to_an_older_one_but_never_to_a_younger() -> None:
    scheduler, pool = _scheduler(num_blocks=4)
    old, young = _sequence(1, 16), _sequence(2, 16)
    scheduler.schedule([young], 0.0)
    young.num_computed = 12
    assert _counts(scheduler.schedule([old, young], 0.0)) == {1: 12}
    assert young.num_computed == 0
    assert not young.dormant
    old.tables[0].blocks += pool.allocate(1)
    old.num_computed = 15
    assert _counts(scheduler.schedule([old, young], 0.0)) == {1: 1}


def test_blocks_past_a_cut_are_given_back() -> None:
    scheduler, pool = _scheduler()
    sequence = _sequence(1, 16)
    _compute(scheduler.schedule([sequence], 0.0))
    sequence.num_computed = 5
    scheduler.settle(sequence)
    (table,) = sequence.tables
    assert (len(table.blocks), pool.num_free) == (2, 98)
    scheduler.release(sequence)
    assert (table.blocks, sequence.num_computed, pool.num_free) == ([], 0, 100)
