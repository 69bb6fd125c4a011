"""The cache tensors, allocated once, and how many blocks a budget holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from sensorium.core.block_pool import cdiv
from sensorium.core.models.base import DecoderShape

SCALE_DTYPE = torch.bfloat16
"""Of the scale that a key or value vector has in a float8 cache: float32's range in two bytes."""

_MOST_PADDING = 0.05


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that attend to the same positions and share a block table."""

    window: int | None
    layers: tuple[int, ...]


def layer_groups(windows: Sequence[int | None]) -> tuple[LayerGroup, ...]:
    """Split layers into groups of (nearly) equal size, by what they attend to.

    A block serves all layers of a group, so with equal groups one pool of equal blocks serves
    full and window layers alike, and no share of memory is set apart for either. Full layers fill
    their groups exactly, since they grow; window groups may be padded a little.

    Example: Muse Spark's 16 full and 46 window layers make groups of 16, 16, 16 and 14.
    """
    kinds: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        kinds.setdefault(window, []).append(layer)
    counts = [len(layers) for layers in kinds.values()]
    growing = len(kinds.get(None, ())) or max(counts)
    size = next(
        size
        for size in range(growing, 0, -1)
        if growing % size == 0
        and sum(cdiv(n, size) * size for n in counts) <= (1 + _MOST_PADDING) * len(windows)
    )
    return tuple(
        LayerGroup(window, tuple(layers[begin : begin + size]))
        for window, layers in kinds.items()
        for begin in range(0, len(layers), size)
    )


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
        size = (_group_size(self.groups), 2, (num_blocks + 1) * block_size, shape.num_kv_heads)
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
    layers = _group_size(layer_groups(shape.windows))
    return 2 * layers * block_size * shape.num_kv_heads * vector


def most_blocks(
    windows: Sequence[int | None], num_positions: int, block_size: int, kept: int
) -> int:
    """How many blocks a sequence of `num_positions` holds at most, over all groups.

    `kept`: positions beyond its window that a window layer holds, those of a step included.
    """
    whole = cdiv(num_positions, block_size)
    return sum(
        # a window that begins inside a block holds one block more
        whole if group.window is None else min(whole, cdiv(group.window + kept, block_size) + 1)
        for group in layer_groups(windows)
    )


def most_positions(
    windows: Sequence[int | None], num_blocks: int, block_size: int, kept: int
) -> int:
    """How many positions one sequence can have if all blocks are its own."""
    low, high = 0, num_blocks
    while low < high:
        middle = (low + high + 1) // 2
        if most_blocks(windows, middle * block_size, block_size, kept) <= num_blocks:
            low = middle
        else:
            high = middle - 1
    whole = layer_groups(windows)
    unbounded = all(group.window is not None for group in whole)
    if unbounded and most_blocks(windows, 1 << 40, block_size, kept) <= num_blocks:
        return 1 << 40
    return low * block_size


def num_blocks_in(
    budget_bytes: int, shape: DecoderShape, block_size: int, dtype: torch.dtype, max_sequences: int
) -> int:
    """How many blocks the budget holds, capped at what `max_sequences` full contexts could use."""
    whole = cdiv(shape.max_positions, block_size) * len(layer_groups(shape.windows))
    return min(budget_bytes // block_bytes(shape, block_size, dtype) - 1, max_sequences * whole)


def _group_size(groups: Sequence[LayerGroup]) -> int:
    return max(len(group.layers) for group in groups)
