"""What one step runs: scheduled positions of all sequences, flat along one token axis.

Shape letters, used everywhere in core and kernels: T tokens in the batch, R rows to sample, S
sequences that advance by one position, L context length, D width, H query heads, Hk KV heads,
Dh head width, V vocabulary, E experts, k experts per token, M width inside the mixture.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sensorium.core.block_pool import NULL_BLOCK
from sensorium.core.block_table import BlockTable
from sensorium.core.scheduler import Scheduled
from sensorium.core.span import SLOT

_LITTLE_PADDING = 8
"""Blocks of padding that cost less than attending apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """Tokens `start` … `end` are one each of S sequences that see about as much."""

    start: int
    end: int
    block_tables: Tensor
    """Blocks of what each of them sees, padded with the null block: [S, B]."""
    mask: Tensor
    """0 where a token sees a row of its blocks, else -inf, in the type of queries: [S, L]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Tokens `start` … `end` belong to one sequence; all they can see lies in `blocks` [B].

    Counted from the first of these blocks' rows, that is rows `first_row` … `end_row`; the last of
    them is the last token's own.
    """

    start: int
    end: int
    blocks: Tensor
    first_row: int
    end_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where the layers of one group find and put keys and values in this step.

    The first tokens of a batch are those of sequences that advance by one, in order of length.
    They are attended to in parts, so that a short sequence is never padded to a long one.

    Example: block size 4, no window; sequence A has 5 cached positions in blocks 2 and 7 and
    advances by one, B is new, with 3 tokens in block 1. Then `slot_mapping` = [7·4 + 1, 4, 5, 6],
    one decode has `block_tables` [[2, 7]] and `mask` [[0, 0, 0, 0, 0, 0, -inf, -inf]], and one
    prefill has start 1, end 4, blocks [1], rows 0 … 3. With a window of 3, `mask` = [[-inf, -inf,
    -inf, 0, 0, 0, -inf, -inf]].
    """

    slot_mapping: Tensor
    """Cache row that each token writes: [T]."""
    decodes: tuple[Decode, ...]
    prefills: tuple[Prefill, ...]
    window: int | None
    """How far back a query sees, itself included; the rows of a prefill may reach further."""
    block_size: int
    dtype: torch.dtype
    """The queries'."""


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
    scheduled: list[Scheduled],
    *,
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
    sample_all: bool = False,
) -> Batch:
    """Lay scheduled work out flat.

    Sequences that advance by one position must come first, in order of length.

    `dtype` is the queries'. `sample_all` asks for logits of every token, not only where the next
    one is due.
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
            _context([_look(item, group, block_size) for item in scheduled], dtype, device)
            for group in range(num_groups)
        ),
        sample_indices=torch.tensor(sampled, dtype=torch.long).to(device),
    )


@dataclass(frozen=True, slots=True)
class _View:
    """What one sequence's scheduled positions see and write in one layer group."""

    table: BlockTable
    blocks: list[int]
    first_row: int
    end_row: int
    count: int
    block_size: int

    def written(self) -> list[int]:
        """Return the cache rows of the scheduled positions."""
        size = self.block_size
        places = range(self.end_row - self.count, self.end_row)
        return [self.blocks[place // size] * size + place % size for place in places]


def _look(item: Scheduled, group: int, block_size: int) -> _View:
    table, begin = item.sequence.tables[group], item.sequence.num_computed
    end, first = begin + item.count, table.first_needed(begin)
    blocks, first_row = table.rows(first, end)
    return _View(table, blocks, first_row, first_row + end - first, item.count, block_size)


def _context(views: list[_View], dtype: torch.dtype, device: torch.device) -> Context:
    """Lay one layer group's views out flat."""
    num_single = sum(view.count == 1 for view in views)
    decodes = [
        _decode(views[begin:end], begin, dtype, device) for begin, end in _alike(views[:num_single])
    ]
    prefills = []
    end = num_single
    for view in views[num_single:]:
        end += view.count
        prefills.append(
            Prefill(
                start=end - view.count,
                end=end,
                blocks=torch.tensor(view.blocks).to(device),
                first_row=view.first_row,
                end_row=view.end_row,
            )
        )
    return Context(
        slot_mapping=torch.tensor([row for view in views for row in view.written()]).to(device),
        decodes=tuple(decodes),
        prefills=tuple(prefills),
        window=views[0].table.window,
        block_size=views[0].block_size,
        dtype=dtype,
    )


def _alike(single: list[_View]) -> list[tuple[int, int]]:
    """Cut single positions where the number of blocks has doubled; returns (begin, end) pairs."""
    cuts = [0]
    for index, view in enumerate(single):
        if len(view.blocks) > 2 * len(single[cuts[-1]].blocks) + _LITTLE_PADDING:
            cuts.append(index)
    return list(zip(cuts, [*cuts[1:], len(single)], strict=True)) if single else []


def _decode(views: list[_View], start: int, dtype: torch.dtype, device: torch.device) -> Decode:
    width = max(len(view.blocks) for view in views)
    padded = [view.blocks + [NULL_BLOCK] * (width - len(view.blocks)) for view in views]
    bounds = torch.tensor([(view.first_row, view.end_row) for view in views])[..., None]
    place = torch.arange(width * views[0].block_size)
    hidden = (place < bounds[:, 0]) | (place >= bounds[:, 1])  # [S, L]
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)
    return Decode(
        start=start,
        end=start + len(views),
        block_tables=torch.tensor(padded).to(device),
        mask=mask.to(device),
    )
