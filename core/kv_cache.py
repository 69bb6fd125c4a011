"""The cache tensors, allocated once, and how many blocks a budget holds."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from sensorium.core.block_pool import cdiv
from sensorium.core.layer_groups import group_size, layer_groups
from sensorium.core.models.base import DecoderShape

SCALE_DTYPE = torch.bfloat16
"""Of the scale that a key or value vector has in a float8 cache: float32's range in two bytes."""


class LayerKV(NamedTuple):
    """One layer's keys and values, [rows, 2, Hk, Dh], keys first; to be written in place.

    In a float8 cache each vector has a scale, [rows, 2, Hk, 1]: key = cache · scale.
    """

    cache: torch.Tensor
    scale: torch.Tensor | None = None


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
        size = ((num_blocks + 1) * block_size, 2, shape.num_kv_heads)
        # zeros, as pages untouched then cost no memory
        places = [
            LayerKV(
                torch.zeros(*size, shape.head_dim, dtype=dtype, device=device),
                torch.zeros(*size, 1, dtype=SCALE_DTYPE, device=device)
                if dtype.itemsize == 1
                else None,
            )
            for _ in range(group_size(self.groups))
        ]
        self._places = places
        self._layers = {
            layer: (number, place)
            for number, group in enumerate(self.groups)
            for layer, place in zip(group.layers, places, strict=False)
        }

    def layer(self, index: int) -> LayerKV:
        """Return one layer's keys and values."""
        return self._layers[index][1]

    def clear(self, blocks: Sequence[int]) -> None:
        """Zero blocks that get a new owner, who reads whole blocks before it has filled them.

        What a mask hides still takes part as 0 · value, which a former owner's NaN would survive.
        """
        if not blocks:
            return
        index = torch.tensor(blocks, device=self.device)
        for tensor in (tensor for place in self._places for tensor in place if tensor is not None):
            rows = tensor.view(len(tensor) // self.block_size, -1)
            if tensor.dtype.itemsize == 1:
                rows = rows.view(torch.uint8)
            rows.index_fill_(0, index, 0)

    def group_of(self, index: int) -> int:
        """Return the number of a layer's group."""
        return self._layers[index][0]


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
