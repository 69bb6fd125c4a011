"""The cache tensors, allocated once, and how many blocks a budget holds."""

from typing import NamedTuple

import torch

from sensorium.core.block_pool import cdiv
from sensorium.core.layer_groups import group_size, layer_groups
from sensorium.core.models.base import DecoderShape

SCALE_DTYPE = torch.bfloat16
"""Of the scale that a key or value vector has in a float8 cache: float32's range in two bytes."""


class LayerKV(NamedTuple):
    """One layer's keys and values, [rows, Hk, Dh] each, to be written in place.

    In a float8 cache each vector has a scale, [rows, Hk, 1]: key = k · k_scale.
    """

    k: torch.Tensor
    v: torch.Tensor
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None


class KVCache:
    """Keys and values of every layer, as flat rows: row = block · block_size + offset.

    The layers of a group lie in as many tensors, and the layers of all groups share these: a block
    belongs to one group at a time. Block 0 is the null block: never written, always zero.
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
        self.groups = layer_groups(shape.windows)
        self._place = {
            layer: (number, index)
            for number, group in enumerate(self.groups)
            for index, layer in enumerate(group.layers)
        }
        size = (group_size(self.groups), 2, (num_blocks + 1) * block_size, shape.num_kv_heads)
        # [layers of a group, K and V, rows, Hk, Dh]; zeros, as pages untouched then cost no memory
        self._rows = torch.zeros(*size, shape.head_dim, dtype=dtype, device=device)
        self._scales = None
        if dtype.itemsize == 1:
            self._scales = torch.zeros(*size, 1, dtype=SCALE_DTYPE, device=device)

    def layer(self, index: int) -> LayerKV:
        """Return one layer's keys and values."""
        _, place = self._place[index]
        k, v = self._rows[place]
        return LayerKV(k, v) if self._scales is None else LayerKV(k, v, *self._scales[place])

    def group_of(self, index: int) -> int:
        """Return the number of a layer's group."""
        return self._place[index][0]


def block_bytes(shape: DecoderShape, block_size: int, dtype: torch.dtype) -> int:
    """How many bytes one block takes: the rows of all layers of a group, with their scales."""
    vector = shape.head_dim * dtype.itemsize
    if dtype.itemsize == 1:
        vector += SCALE_DTYPE.itemsize
    layers = group_size(layer_groups(shape.windows))
    return 2 * layers * block_size * shape.num_kv_heads * vector


def num_blocks_in(
    budget_bytes: int, shape: DecoderShape, block_size: int, dtype: torch.dtype, max_sequences: int
) -> int:
    """How many blocks the budget holds, capped at what `max_sequences` full contexts could use."""
    whole = cdiv(shape.max_positions, block_size) * len(layer_groups(shape.windows))
    return min(budget_bytes // block_bytes(shape, block_size, dtype) - 1, max_sequences * whole)
