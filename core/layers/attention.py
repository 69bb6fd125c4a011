"""Grouped-query attention over the paged cache, with rotary positions."""

import torch
from torch import Tensor

from sensorium import kernels
from sensorium.core.batch import Context
from sensorium.core.kv_cache import LayerKV
from sensorium.core.layers.layer import Layer
from sensorium.core.layers.linear import Linear


class Attention(Layer):
    """H query heads share Hk ≤ H key and value heads (Ainslie et al., 2023).

    The projections of queries, keys and values are one matrix, in that order.
    """

    def __init__(self, width: int, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
        """Leave the weights to be loaded."""
        super().__init__()
        self.head_dim = head_dim
        self.qkv = Linear(width, (num_heads + 2 * num_kv_heads) * head_dim)
        self.out = Linear(num_heads * head_dim, width)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], context: Context, kv: LayerKV
    ) -> Tensor:
        """[T, D] → [T, D]; writes the step's keys and values to `kv` before it reads them."""
        cos, sin = rotary
        qkv = self.qkv(x).unflatten(-1, (-1, self.head_dim))  # [T, H + 2 Hk, Dh]
        q = kernels.rope_and_store(qkv, cos, sin, context.slot_mapping, *kv)
        return self.out(attend(q, context, kv))


def attend(q: Tensor, context: Context, kv: LayerKV) -> Tensor:
    """Attend from each token of the step to what it sees: q [T, H, Dh] → [T, H · Dh]."""
    parts = [
        kernels.decode_attention(q[part.start : part.end], *kv, part.block_tables, part.mask)
        for part in context.decodes
    ]
    for prefill in context.prefills:
        parts.append(
            kernels.prefill_attention(
                q[prefill.start : prefill.end],
                *kv,
                prefill.blocks,
                context.block_size,
                prefill.first_row,
                prefill.end_row,
                context.window,
            )
        )
    return parts[0] if len(parts) == 1 else torch.cat(parts)
