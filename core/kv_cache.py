"""The cache tensors, allocated once, and how many blocks a budget holds."""

import torch

from sensorium.core.block_pool import cdiv
from sensorium.core.models.base import DecoderShape


class KVCache:
    """Keys and values of every layer, as flat rows: row = block · block_size + offset.

    Block 0 is the null block: never written, always zero.
    """

    def __init__(
        self,
        shape: DecoderShape,
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Allocate `num_blocks` blocks beside the null block."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.dtype = dtype
        self.device = device
        rows = (num_blocks + 1) * block_size
        # [layers, K and V, rows, Hk, Dh]; zeros, since pages untouched then cost no memory
        self._rows = torch.zeros(
            shape.num_layers,
            2,
            rows,
            shape.num_kv_heads,
            shape.head_dim,
            dtype=dtype,
            device=device,
        )

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one layer's keys and values, [rows, Hk, Dh] each, to be written in place."""
        k, v = self._rows[index]
        return k, v


def num_blocks_in(
    budget_bytes: int, shape: DecoderShape, block_size: int, dtype: torch.dtype, max_sequences: int
) -> int:
    """How many blocks the budget holds, capped at what `max_sequences` full contexts could use."""
    row_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * dtype.itemsize
    most = max_sequences * cdiv(shape.max_positions, block_size)
    return min(budget_bytes // (row_bytes * block_size) - 1, most)
