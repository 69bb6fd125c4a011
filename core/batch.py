"""What one step runs: scheduled positions of all sequences, flat along one token axis.

Shape letters, used everywhere in core and kernels: T tokens in the batch, R rows to sample, S
sequences that advance by one position, L context length, D width, H query heads, Hk KV heads,
Dh head width, V vocabulary, E experts, k experts per token, M width inside the mixture.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sensorium.core.block_table import BlockTable
from sensorium.core.scheduler import Scheduled
from sensorium.core.span import SLOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Tokens `start` … `end` belong to one sequence; `kv_rows` [L] is all they can see."""

    start: int
    end: int
    kv_rows: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where the layers of one group find and put keys and values in this step.

    The first S tokens of a batch are those of sequences that advance by one.

    Example: block size 4, no window; sequence A has 5 cached positions in blocks 2 and 7 and
    advances by one, B is new, with 3 tokens in block 1. Then `slot_mapping` = [7·4 + 1, 4, 5, 6],
    `kv_rows` = [[8, 9, 10, 11, 28, 29]], `lengths` = [6], and one prefill has start 1, end 4,
    kv_rows [4, 5, 6]. With a window of 3, `kv_rows` = [[11, 28, 29]] and `lengths` = [3].
    """

    slot_mapping: Tensor
    """Cache row that each token writes: [T]."""
    kv_rows: Tensor
    """Cache rows that the first S tokens see, padded with the null row 0: [S, L]."""
    lengths: Tensor
    """How many of them are real: [S]."""
    prefills: tuple[Prefill, ...]
    window: int | None
    """How far back a query sees, itself included; the rows of a prefill may reach further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Flat tensors of one step; `contexts` has one entry per layer group."""

    token_ids: Tensor
    """[T]; 0 where an embedding row goes instead."""
    slots: Tensor
    """Indices into T where `rows` go: [n]."""
    rows: Tensor | None
    """[n, D], or None where no slot is filled in this step."""
    positions: Tensor
    """[T]"""
    contexts: tuple[Context, ...]
    sample_indices: Tensor
    """Which tokens yield logits: [R]."""


def build_batch(
    scheduled: list[Scheduled], *, block_size: int, device: torch.device, sample_all: bool = False
) -> Batch:
    """Lay scheduled work out flat. Sequences that advance by one position must come first.

    `sample_all` asks for logits of every token, not only where the next one is due.
    """
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
    sampled = [end - 1 for item, end in zip(scheduled, ends, strict=True) if item.samples]
    if sample_all:
        sampled = list(range(len(token_ids)))
    num_groups = len(scheduled[0].sequence.tables)
    return Batch(
        token_ids=torch.tensor(token_ids).to(device),
        slots=torch.tensor(slots, dtype=torch.long).to(device),
        rows=torch.stack(rows).to(device) if rows else None,
        positions=torch.tensor(positions).to(device),
        contexts=tuple(
            _context(scheduled, group, block_size, device) for group in range(num_groups)
        ),
        sample_indices=torch.tensor(sampled, dtype=torch.long).to(device),
    )


def _context(
    scheduled: list[Scheduled], group: int, block_size: int, device: torch.device
) -> Context:
    """Look up the cache rows of one layer group."""
    seen = [_kv_rows(item, item.sequence.tables[group], block_size) for item in scheduled]
    num_single = sum(item.count == 1 for item in scheduled)
    kv_rows = torch.empty(0, 0, dtype=torch.long)
    if num_single:
        kv_rows = torch.nn.utils.rnn.pad_sequence(seen[:num_single], batch_first=True)
    slot_mapping = torch.cat([r[-i.count :] for r, i in zip(seen, scheduled, strict=True)])
    prefills = []
    end = num_single
    for item, rows in list(zip(scheduled, seen, strict=True))[num_single:]:
        end += item.count
        prefills.append(Prefill(start=end - item.count, end=end, kv_rows=rows.to(device)))
    return Context(
        slot_mapping=slot_mapping.to(device),
        kv_rows=kv_rows.to(device),
        lengths=torch.tensor([len(rows) for rows in seen[:num_single]]).to(device),
        prefills=tuple(prefills),
        window=scheduled[0].sequence.tables[group].window,
    )


def _kv_rows(item: Scheduled, table: BlockTable, block_size: int) -> Tensor:
    """Cache rows of all that the scheduled positions see, themselves included: [L]."""
    begin = item.sequence.num_computed
    end, first = begin + item.count, table.first_needed(begin)
    blocks, offset = table.rows(first, end)
    rows = torch.tensor(blocks)[:, None] * block_size + torch.arange(block_size)
    return rows.flatten()[offset : offset + end - first]
