"""Batch-invariant mode: each position of a step passes through the model alone.

A matrix product or an elementwise loop rounds differently when it has other rows beside it, more
threads, or another place in a vector. Run alone, a position meets operations whose shapes depend on
its own place in its own sequence and on nothing else: not on neighbours, chunks or preemption. So
its logits are the same to the last bit, whatever layers and kernels do. The price: a weight is read
once per position, so a prompt is read no faster than an answer is written.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sensorium.core.batch import Batch, Context, Decode


def run_singly(run: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Compute a batch position by position; returns what `run` would, [R, V]."""
    return torch.cat([run(single) for single in singles(batch)])


def singles(batch: Batch) -> Iterator[Batch]:
    """Split a batch into one for each of its T tokens, in order of position within a sequence."""
    row_of = {token: index for index, token in enumerate(batch.slots.tolist())}
    sampled = set(batch.sample_indices.tolist())
    here, nowhere = batch.slots.new_zeros(1), batch.slots.new_empty(0)
    for token, position in enumerate(batch.positions.tolist()):
        row = row_of.get(token)
        yield Batch(
            token_ids=batch.token_ids[token : token + 1],
            slots=nowhere if row is None else here,
            rows=None if row is None or batch.rows is None else batch.rows[row : row + 1],
            positions=batch.positions[token : token + 1],
            contexts=tuple(_alone(context, token, position) for context in batch.contexts),
            sample_indices=here if token in sampled else nowhere,
        )


def _alone(context: Context, token: int, position: int) -> Context:
    """What one token sees: as many blocks as its position and the window say, and no padding."""
    size = context.block_size
    first = 0 if context.window is None else max(0, position - context.window + 1)
    num_blocks = position // size - first // size + 1
    decode = next((d for d in context.decodes if d.start <= token < d.end), None)
    if decode is not None:
        blocks = decode.block_tables[token - decode.start, :num_blocks]
    else:
        prefill = next(p for p in context.prefills if p.start <= token < p.end)
        own = (prefill.end_row - (prefill.end - token)) // size  # the block of the token itself
        blocks = prefill.blocks[own + 1 - num_blocks : own + 1]
    mask = torch.full((1, num_blocks * size), -torch.inf, dtype=context.dtype, device=blocks.device)
    mask[0, first % size : first % size + position - first + 1] = 0
    return Context(
        slot_mapping=context.slot_mapping[token : token + 1],
        decodes=(Decode(start=0, end=1, block_tables=blocks[None], mask=mask),),
        prefills=(),
        window=context.window,
        block_size=size,
        dtype=context.dtype,
    )
