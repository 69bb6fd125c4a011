"""What one step runs: scheduled positions of all sequences, flat along one token axis.

Shape letters, used everywhere in core and kernels: T tokens in the batch, R rows to sample, S
sequences that advance by one position, L context length, D width, H query heads, Hk KV heads,
Dh head width, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sensorium.core.block_pool import cdiv
from sensorium.core.scheduler import Scheduled
from sensorium.core.sequence import SLOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Tokens `start` … `end` belong to one sequence; `kv_rows` [L] is all its context."""

    start: int
    end: int
    kv_rows: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Flat tensors of one step; the first S tokens are those of sequences that advance by one.

    Example: block size 4; sequence A has 5 cached positions in blocks 2 and 7 and advances by one,
    B is new, with 3 tokens in block 1. Then T = 4, `positions` = [5, 0, 1, 2], `slot_mapping` =
    [7·4 + 1, 4, 5, 6], `kv_rows` = [[8, 9, 10, 11, 28, 29]], `lengths` = [6], and one prefill has
    start 1, end 4, kv_rows [4, 5, 6].
    """

    token_ids: Tensor
    """[T]; 0 where an embedding row goes instead."""
    slots: Tensor
    """Indices into T where `rows` go: [n]."""
    rows: Tensor | None
    """[n, D], or None where no slot is filled in this step."""
    positions: Tensor
    """[T]"""
    slot_mapping: Tensor
    """Cache row that each token writes: [T]."""
    kv_rows: Tensor
    """Cache rows of the context of the first S tokens, padded with the null row 0: [S, L]."""
    lengths: Tensor
    """How many of them are real: [S]."""
    prefills: tuple[Prefill, ...]
    sample_indices: Tensor
    """Which tokens yield logits: [R]."""


def build_batch(scheduled: list[Scheduled], *, block_size: int, device: torch.device) -> Batch:
    """Lay scheduled work out flat. Sequences that advance by one position must come first."""
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    rows: list[Tensor] = []
    ends: list[int] = []
    for item in scheduled:
        sequence, begin = item.sequence, item.sequence.num_computed
        offset = len(token_ids) - begin
        new_ids = sequence.token_ids[begin : begin + item.count]
        if sequence.rows:
            slots += [p + offset for p, t in enumerate(new_ids, start=begin) if t == SLOT]
            rows += [sequence.rows[p] for p, t in enumerate(new_ids, start=begin) if t == SLOT]
        token_ids += [max(t, 0) for t in new_ids]
        positions += range(begin, begin + item.count)
        ends.append(len(token_ids))
    num_single = sum(item.count == 1 for item in scheduled)
    tables = [_kv_rows(item, block_size) for item in scheduled]
    lengths = torch.tensor([len(t) for t in tables[:num_single]])
    kv_rows = (
        torch.nn.utils.rnn.pad_sequence(tables[:num_single], batch_first=True)
        if (num_single)
        else torch.empty(0, 0, dtype=torch.long)
    )
    slot_mapping = torch.cat([t[-i.count :] for t, i in zip(tables, scheduled, strict=True)])
    return Batch(
        token_ids=torch.tensor(token_ids).to(device),
        slots=torch.tensor(slots, dtype=torch.long).to(device),
        rows=torch.stack(rows).to(device) if rows else None,
        positions=torch.tensor(positions).to(device),
        slot_mapping=slot_mapping.to(device),
        kv_rows=kv_rows.to(device),
        lengths=lengths.to(device),
        prefills=tuple(
            Prefill(start=end - item.count, end=end, kv_rows=table.to(device))
            for item, end, table in zip(scheduled, ends, tables, strict=True)
            if item.count > 1
        ),
        sample_indices=torch.tensor(
            [end - 1 for item, end in zip(scheduled, ends, strict=True) if item.samples],
            dtype=torch.long,
        ).to(device),
    )


def _kv_rows(item: Scheduled, block_size: int) -> Tensor:
    """Cache rows of every position up to the last scheduled one: [L]."""
    end = item.sequence.num_computed + item.count
    blocks = torch.tensor(item.sequence.blocks[: cdiv(end, block_size)])
    rows = blocks[:, None] * block_size + torch.arange(block_size)  # [blocks, block_size]
    return rows.flatten()[:end]
