"""Which sequences advance by how many positions in a step, and which give up cached blocks for it.

Plain Python over sequences and the block pool. Rules:

1. Sequences with one position to compute (generations) come first; a quarter of the budget is kept
   for prefill while any waits, so neither starves the other.
2. What is left is shared evenly among prefills: a short one takes what it needs and leaves the
   rest. The longest unserved ones come first when there isn't a block's worth for everybody.
3. When blocks run out, idle sequences lose theirs, the longest unused first; then working ones,
   the youngest first, but never to one younger than themselves: so the oldest always advances.
   A sequence without blocks is recomputed from its ids and rows when it has work again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sensorium.core.block_pool import BlockPool, cdiv
from sensorium.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Scheduled:
    """`count` positions of a sequence, from its `num_computed` on."""

    sequence: Sequence
    count: int

    @property
    def samples(self) -> bool:
        """Whether the last of these positions yields the next token of a generation."""
        sequence = self.sequence
        return sequence.generation is not None and self.count == sequence.num_to_prefill


class Scheduler:
    """Shares `max_step_tokens` and the pool's blocks among sequences."""

    def __init__(self, pool: BlockPool, *, block_size: int, max_step_tokens: int) -> None:
        """Keep the budgets; the pool is shared with the engine."""
        self._pool = pool
        self._block_size = block_size
        self._max_step_tokens = max_step_tokens
        self._num_steps = 0

    def schedule(self, sequences: Iterable[Sequence], now: float) -> list[Scheduled]:
        """Choose this step's work and reserve its blocks; single positions come first.

        `now` is in seconds; it marks the sequences served as used.
        """
        everyone = list(sequences)
        self._num_steps += 1
        counts = self._share_tokens([s for s in everyone if s.num_due])
        for sequence in sorted(counts, key=lambda s: s.order):
            if sequence in counts and not self._reserve(sequence, counts, everyone):
                del counts[sequence]
        for sequence in counts:
            sequence.last_step, sequence.last_used = self._num_steps, now
        return sorted(
            (Scheduled(sequence, count) for sequence, count in counts.items()),
            key=lambda s: (s.count > 1, s.sequence.order),
        )

    def release(self, sequence: Sequence) -> None:
        """Give all blocks of a sequence back; its positions count as not computed."""
        sequence.num_computed = 0
        self.trim(sequence)

    def trim(self, sequence: Sequence) -> None:
        """Give back the blocks past what is computed (after a rollback)."""
        keep = cdiv(sequence.num_computed, self._block_size)
        self._pool.free(sequence.blocks[keep:])
        del sequence.blocks[keep:]

    def _share_tokens(self, working: list[Sequence]) -> dict[Sequence, int]:
        """Split the step's budget; returns positions per sequence."""
        waited = sorted(working, key=lambda s: (s.last_step, s.order))
        single = [s for s in waited if s.num_to_prefill == 1]
        longer = [s for s in waited if s.num_to_prefill > 1]
        budget = self._max_step_tokens
        single = single[: budget - (budget // 4 if longer else 0)]
        counts = dict.fromkeys(single, 1)
        budget -= len(single)
        longer = longer[: cdiv(budget, self._block_size)]
        for i, sequence in enumerate(sorted(longer, key=lambda s: s.num_to_prefill)):
            count = min(sequence.num_to_prefill, cdiv(budget, len(longer) - i))
            counts[sequence] = count
            budget -= count
        return counts

    def _reserve(
        self, sequence: Sequence, counts: dict[Sequence, int], everyone: list[Sequence]
    ) -> bool:
        """Give a sequence the blocks it needs, from others if it must; False if it has to wait."""
        end = sequence.num_computed + counts[sequence]
        missing = cdiv(end, self._block_size) - len(sequence.blocks)
        while missing > self._pool.num_free:
            victim = self._victim(sequence, everyone)
            if victim is None:
                return False
            victim.dormant = not victim.num_due
            self.release(victim)
            counts.pop(victim, None)
        sequence.blocks += self._pool.allocate(missing)
        return True

    def _victim(self, sequence: Sequence, everyone: list[Sequence]) -> Sequence | None:
        """Choose who loses its blocks to `sequence`."""
        holders = [s for s in everyone if s.blocks and s is not sequence]
        idle = [s for s in holders if not s.num_due]
        if idle:
            return min(idle, key=lambda s: (s.last_used, s.order))
        younger = [s for s in holders if s.order > sequence.order]
        return max(younger, key=lambda s: s.order, default=None)
