"""Which layers share a block table, and how many blocks a sequence holds. Plain integers."""

from collections.abc import Sequence
from dataclasses import dataclass

from sensorium.core.block_pool import cdiv

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


def group_size(groups: Sequence[LayerGroup]) -> int:
    """How many layers a block serves: those of the largest group."""
    return max(len(group.layers) for group in groups)


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
