"""Which blocks hold one sequence's keys and values in one layer group. Plain integers."""

from collections.abc import Iterable

from sensorium.core.block_pool import NULL_BLOCK, cdiv

TURN_HEAD = 64
"""Positions before a turn's first one that may be rolled back with it: its message's opening."""


class BlockTable:
    """Blocks in order of position; NULL_BLOCK where a window layer has given one up.

    Layers with a window need the last `window` positions, the query's own included; they keep
    more than that as long as somebody might roll back to it.
    """

    def __init__(self, window: int | None, block_size: int) -> None:
        """Start empty. `window` None: every position is needed for ever."""
        self.blocks: list[int] = []
        self.window = window
        self._block_size = block_size
        self._first = 0  # no block before this one is held

    @property
    def held(self) -> list[int]:
        """The blocks that are really there."""
        return [b for b in self.blocks[self._first :] if b != NULL_BLOCK]

    def missing(self, end: int) -> int:
        """How many blocks must be added before positions up to `end` can be written."""
        return max(cdiv(end, self._block_size) - len(self.blocks), 0)

    def first_needed(self, position: int) -> int:
        """Return the first position that a query at `position` sees."""
        return 0 if self.window is None else max(0, position - self.window + 1)

    def reaches(self, position: int) -> bool:
        """Tell whether computing can go on at `position`: all that it sees is still held."""
        end = cdiv(position, self._block_size)
        if self.window is None or end > len(self.blocks):
            return end <= len(self.blocks)
        first = self.first_needed(position) // self._block_size
        return all(self.blocks[first:end])

    def rows(self, first: int, end: int) -> tuple[list[int], int]:
        """Return the blocks of positions `first` … `end` and the place of `first` in them."""
        size = self._block_size
        return self.blocks[first // size : cdiv(end, size)], first % size

    def cut(self, position: int) -> list[int]:
        """Drop the blocks past `position`; returns those to give back."""
        keep = cdiv(position, self._block_size)
        dropped = [b for b in self.blocks[keep:] if b != NULL_BLOCK]
        del self.blocks[keep:]
        self._first = min(self._first, keep)
        return dropped

    def retire(self, computed: int, *, slack: int, boundaries: Iterable[int] = ()) -> list[int]:
        """Give up what nothing needs after `computed` positions; returns those to give back.

        Kept are the window, `slack` positions before it, and all that it takes to go on at each of
        the `boundaries`, or up to TURN_HEAD positions before it.
        """
        if self.window is None:
            return []
        size = self._block_size
        end = self.first_needed(max(computed - slack, 0)) // size
        kept: set[int] = set()
        for boundary in boundaries:
            first = self.first_needed(max(boundary - TURN_HEAD, 0))
            kept.update(range(first // size, cdiv(boundary, size)))
        dropped = []
        for index in range(self._first, end):
            if self.blocks[index] != NULL_BLOCK and index not in kept:
                dropped.append(self.blocks[index])
                self.blocks[index] = NULL_BLOCK
        while self._first < end and self.blocks[self._first] == NULL_BLOCK:
            self._first += 1
        return dropped

    def lend(self, other: "BlockTable", position: int) -> list[int]:
        """Let an empty table of a fork use the full blocks before `position`; returns them."""
        end = position // self._block_size
        first = min(self.first_needed(position) // self._block_size, end)
        other.blocks = [NULL_BLOCK] * first + self.blocks[first:end]
        other._first = first
        return self.blocks[first:end]
