"""KV blocks: allocate, share, free, count. Plain integers; the tensors are kv_cache.py's."""

NULL_BLOCK = 0
"""Never handed out; its rows stay zero, and padding points at them."""


def cdiv(a: int, b: int) -> int:
    """Divide, rounding up."""
    return -(-a // b)


class BlockPool:
    """Counted references to the blocks 1 … `num_blocks`; a block is free when nobody holds it."""

    def __init__(self, num_blocks: int) -> None:
        """Start with every block free."""
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks, NULL_BLOCK, -1))
        self._num_holders = [0] * (num_blocks + 1)

    @property
    def num_free(self) -> int:
        """How many blocks `allocate` could give now."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one holder. The caller checks `num_free` first."""
        assert count <= self.num_free
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._num_holders[block] = 1
        return blocks

    def share(self, blocks: list[int]) -> None:
        """Add a holder to each block, which must be held already; its rows are now read-only."""
        for block in blocks:
            assert self._num_holders[block] > 0
            self._num_holders[block] += 1

    def is_shared(self, block: int) -> bool:
        """Tell whether more than one holds the block, so that nobody may write it."""
        return self._num_holders[block] > 1

    def free(self, blocks: list[int]) -> None:
        """Give up one hold on each block."""
        for block in blocks:
            assert self._num_holders[block] > 0
            self._num_holders[block] -= 1
            if not self._num_holders[block]:
                self._free.append(block)
