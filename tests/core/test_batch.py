import math

import torch

from sensorium.core.api import AppendTokens, Generate, OpenSpan, SequenceId, SpanId
from sensorium.core.batch import build_batch
from sensorium.core.block_table import BlockTable
from sensorium.core.choosing import Chooser
from sensorium.core.scheduler import Scheduled
from sensorium.core.sequence import Sequence

CPU = torch.device("cpu")


def _sequence(
    token_ids: tuple[int, ...], blocks: list[int], computed: int, window: int | None = None
) -> Sequence:
    table = BlockTable(window, 4)
    sequence = Sequence(SequenceId(1), tables=[table], max_positions=300, order=1)
    one = SequenceId(1)
    sequence.put(AppendTokens(sequence_id=one, span_id=SpanId(1), token_ids=token_ids))
    sequence.put(Generate(sequence_id=one, span_id=SpanId(2)))
    sequence.settle(lambda sampling: Chooser(sampling=sampling))
    table.blocks, sequence.num_computed = blocks, computed
    return sequence


def test_batch_is_laid_out_as_its_docstring_shows() -> None:
    a, b = _sequence((9,) * 6, [2, 7], 5), _sequence((4, 5, 6), [1], 0)
    batch = build_batch(
        [Scheduled(a, 1), Scheduled(b, 3)], block_size=4, dtype=torch.float32, device=CPU
    )
    assert batch.token_ids.tolist() == [9, 4, 5, 6]
    assert batch.positions.tolist() == [5, 0, 1, 2]
    (context,) = batch.contexts
    assert context.slot_mapping.tolist() == [29, 4, 5, 6]
    (decode,) = context.decodes
    assert (decode.start, decode.end, decode.block_tables.tolist()) == (0, 1, [[2, 7]])
    assert decode.mask.tolist() == [[*[0] * 6, -math.inf, -math.inf]]
    (prefill,) = context.prefills
    assert (prefill.start, prefill.end, prefill.blocks.tolist()) == (1, 4, [1])
    assert (prefill.first_row, prefill.end_row) == (0, 3)
    assert batch.sample_indices.tolist() == [0, 3]
    assert batch.rows is None


def test_short_contexts_are_padded_with_the_null_block() -> None:
    a, b = _sequence((9,) * 6, [2, 7], 5), _sequence((4, 5), [1], 1)
    batch = build_batch(
        [Scheduled(a, 1), Scheduled(b, 1)], block_size=4, dtype=torch.float32, device=CPU
    )
    (decode,) = batch.contexts[0].decodes
    assert decode.block_tables.tolist() == [[2, 7], [1, 0]]
    assert decode.mask.isfinite().sum(-1).tolist() == [6, 2]


def test_short_contexts_are_not_padded_to_long_ones() -> None:
    lengths = (1, 2, 9, 11, 12, 40, 200)
    blocks = [list(range(1, 1 + -(-length // 4))) for length in lengths]
    items = [
        Scheduled(_sequence((9,) * length, held, length - 1), 1)
        for length, held in zip(lengths, blocks, strict=True)
    ]
    batch = build_batch(items, block_size=4, dtype=torch.float32, device=CPU)
    decodes = batch.contexts[0].decodes
    assert [(d.start, d.end) for d in decodes] == [(0, 6), (6, 7)]
    assert [d.block_tables.shape for d in decodes] == [(6, 10), (1, 50)]
    seen = [int(count) for d in decodes for count in d.mask.isfinite().sum(-1)]
    assert seen == list(lengths)


def test_a_window_layer_sees_only_the_last_positions() -> None:
    a, b = _sequence((9,) * 6, [2, 7], 5, window=3), _sequence((4,) * 9, [0, 6, 1], 5, window=3)
    batch = build_batch(
        [Scheduled(a, 1), Scheduled(b, 4)], block_size=4, dtype=torch.float32, device=CPU
    )
    (context,) = batch.contexts
    (decode,) = context.decodes
    assert decode.block_tables.tolist() == [[2, 7]]
    assert decode.mask.isfinite().tolist() == [[*[False] * 3, *[True] * 3, False, False]]
    # Positions 3 … 8 of b: the first of four queries sees 3, 4 and 5.
    (prefill,) = context.prefills
    assert (prefill.blocks.tolist(), prefill.first_row, prefill.end_row) == ([0, 6, 1], 3, 9)
    assert context.slot_mapping.tolist() == [29, 25, 26, 27, 4]
    assert context.window == 3


def test_unfinished_prompt_yields_no_logits() -> None:
    batch = build_batch(
        [Scheduled(_sequence((1,) * 9, [1], 0), 4)], block_size=4, dtype=torch.float32, device=CPU
    )
    assert batch.sample_indices.tolist() == []
    assert batch.contexts[0].decodes == ()


def test_rows_go_to_the_slots_of_their_positions() -> None:
    table = BlockTable(None, 4)
    sequence = Sequence(SequenceId(1), tables=[table], max_positions=300, order=1)
    one = SequenceId(1)
    sequence.put(AppendTokens(sequence_id=one, span_id=SpanId(1), token_ids=(7, 8)))
    sequence.put(OpenSpan(sequence_id=one, span_id=SpanId(2)))
    rows = torch.arange(12.0).view(3, 4)
    sequence.extend(SpanId(2), rows)
    sequence.settle(lambda sampling: Chooser(sampling=sampling))
    table.blocks, sequence.num_computed = [3, 1], 1
    batch = build_batch([Scheduled(sequence, 3)], block_size=4, dtype=torch.float32, device=CPU)
    assert batch.token_ids.tolist() == [8, 0, 0]
    assert batch.slots.tolist() == [1, 2]
    assert batch.rows is not None
    assert torch.equal(batch.rows, rows[:2])
