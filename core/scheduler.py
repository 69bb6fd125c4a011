"""Which sequences advance by how many positions in a step, and which give up cached blocks for it.

Plain Python over sequences and the block pool. Rules:

1. Sequences with one position to compute (generations) come first; a quarter of the budget is kept
   for prefill while any waits, so neither starves the other.
2. What is left is shared evenly among prefills: a short one takes what it needs and leaves the
   rest to a few long ones, the longest unserved first, since small pieces are read slowly. While
   generations run, a prefill takes less the longer its context is, so that they needn't wait.
3. When blocks run out, window layers first give up what they keep only to be rolled back to. Then
   idle sequences lose all their blocks, the longest unused first; then working ones, the youngest
   first, but never to one younger than themselves: so the oldest always advances. A sequence
   without blocks is recomputed from its ids and rows when it has work again.

Only full blocks are shared between sequences, and a shared block is never written: whoever must
go on inside one goes back to its beginning.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sensorium.core.block_pool import BlockPool, cdiv
from sensorium.core.sequence import Sequence

LEAST_SLACK = 1
"""Positions beyond its window that a window layer always keeps."""


EQUAL_CONTEXT = 2048
"""Attending to so many positions costs as much as all else that a position costs (SmolLM2-135M on
two cores: 256 positions take 0.27 s without a context, 1.5 s behind 6000)."""

MOST_LONG_PREFILLS = 4
"""So many prompts that are longer than their share of a step are read in it; the others wait."""


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

    def __init__(
        self, pool: BlockPool, *, block_size: int, max_step_tokens: int, window_slack: int
    ) -> None:
        """Keep the budgets; the pool is shared with the engine."""
        self._pool = pool
        self._block_size = block_size
        self._max_step_tokens = max_step_tokens
        # A generation computes the last position again, so one must always be left.
        self._window_slack = max(window_slack, LEAST_SLACK)
        self._num_steps = 0
        self.new_blocks: list[int] = []
        """Blocks that `schedule` has given out in this step."""

    def schedule(self, sequences: Iterable[Sequence], now: float) -> list[Scheduled]:
        """Choose this step's work and reserve its blocks.

        Single positions come first, in order of their contexts' lengths; then prefills. `now` is in
        seconds; it marks the sequences served as used.
        """
        everyone = list(sequences)
        self.new_blocks = []
        self._num_steps += 1
        for sequence in everyone:
            if sequence.is_cut:
                self.settle(sequence)
        counts = self._share_tokens([s for s in everyone if s.num_due])
        for sequence in sorted(counts, key=lambda s: s.order):
            if sequence in counts and not self._reserve(sequence, counts, everyone):
                del counts[sequence]
        for sequence in counts:
            sequence.last_step, sequence.last_used = self._num_steps, now
        return sorted(
            (Scheduled(sequence, count) for sequence, count in counts.items()),
            key=_place_in_batch,
        )

    def release(self, sequence: Sequence) -> None:
        """Give all blocks of a sequence back; its positions count as not computed."""
        sequence.num_computed = 0
        self._give_up_after(sequence, 0)

    def settle(self, sequence: Sequence) -> None:
        """After positions were dropped: find where computing can go on, free what lies behind.

        That is the last position kept if nothing it needs is gone or shared; else the beginning of
        its block, of one of the last turns, or of the sequence.
        """
        position = sequence.num_computed
        while position and not self._goes_on_at(sequence, position):
            earlier = [position // self._block_size * self._block_size, *sequence.turn_starts, 0]
            position = max(p for p in earlier if p < position)
        sequence.num_computed = position
        self._give_up_after(sequence, position)

    def advance(self, sequence: Sequence, count: int) -> None:
        """Note that `count` more positions are computed; frees what no window needs any more."""
        sequence.num_computed += count
        turn_starts = sequence.turn_starts
        for table in sequence.tables:
            self._pool.free(
                table.retire(
                    sequence.num_computed, slack=self._window_slack, boundaries=turn_starts
                )
            )

    def share(self, parent: Sequence, child: Sequence) -> None:
        """Let a new fork use its parent's full blocks, if all that it needs is still there."""
        most = min(parent.num_computed, len(child.token_ids))
        position = most // self._block_size * self._block_size
        if position and all(table.reaches(position) for table in parent.tables):
            for ours, theirs in zip(parent.tables, child.tables, strict=True):
                self._pool.share(ours.lend(theirs, position))
            child.num_computed = position

    def _goes_on_at(self, sequence: Sequence, position: int) -> bool:
        """Tell whether the position can be computed with what is cached before it."""
        inside = position % self._block_size
        return all(
            table.reaches(position)
            and not (inside and self._pool.is_shared(table.blocks[position // self._block_size]))
            for table in sequence.tables
        )

    def _give_up_after(self, sequence: Sequence, position: int) -> None:
        sequence.is_cut = False
        for table in sequence.tables:
            self._pool.free(table.cut(position))

    def _share_tokens(self, working: list[Sequence]) -> dict[Sequence, int]:
        """Split the step's budget; returns positions per sequence."""
        waited = sorted(working, key=lambda s: (s.last_step, s.order))
        single = [s for s in waited if s.num_to_prefill == 1]
        longer = [s for s in waited if s.num_to_prefill > 1]
        budget = self._max_step_tokens
        single = single[: budget - (budget // 4 if longer else 0)]
        counts = dict.fromkeys(single, 1)
        budget -= len(single)
        share = budget // max(len(longer), 1)
        put_off = [s for s in longer if s.num_to_prefill > share][MOST_LONG_PREFILLS:]
        longer = [s for s in longer if s not in put_off][: cdiv(budget, self._block_size)]
        for i, sequence in enumerate(sorted(longer, key=lambda s: s.num_to_prefill)):
            count = min(sequence.num_to_prefill, cdiv(budget, len(longer) - i))
            if single:
                count = min(count, self._bearable(sequence))
            counts[sequence] = count
            budget -= count
        return counts

    def _bearable(self, sequence: Sequence) -> int:
        """How many positions of a prefill cost about a whole step, with the context they attend to.

        Generations wait for them. A few are read however long the context is.
        """
        cost = 1 + sequence.num_computed / EQUAL_CONTEXT
        return max(int(self._max_step_tokens / cost), self._block_size)

    def _reserve(
        self, sequence: Sequence, counts: dict[Sequence, int], everyone: list[Sequence]
    ) -> bool:
        """Give a sequence the blocks it needs, from others if it must; False if it has to wait."""
        end = sequence.num_computed + counts[sequence]
        missing = [table.missing(end) for table in sequence.tables]
        while sum(missing) > self._pool.num_free:
            if self._squeeze(everyone):
                continue
            victim = self._victim(sequence, everyone)
            if victim is None:
                return False
            victim.dormant = not victim.num_due
            self.release(victim)
            counts.pop(victim, None)
        for table, count in zip(sequence.tables, missing, strict=True):
            blocks = self._pool.allocate(count)
            table.blocks += blocks
            self.new_blocks += blocks
        return True

    def _squeeze(self, everyone: list[Sequence]) -> bool:
        """Free what window layers keep only for a rollback; False if there is no such block."""
        found = False
        for sequence in everyone:
            for table in sequence.tables:
                blocks = table.retire(sequence.num_computed, slack=LEAST_SLACK)
                self._pool.free(blocks)
                found = found or bool(blocks)
        return found

    def _victim(self, sequence: Sequence, everyone: list[Sequence]) -> Sequence | None:
        """Choose who loses its blocks to `sequence`."""
        holders = [s for s in everyone if s is not sequence and any(t.held for t in s.tables)]
        idle = [s for s in holders if not s.num_due]
        if idle:
            return min(idle, key=lambda s: (s.last_used, s.order))
        younger = [s for s in holders if s.order > sequence.order]
        return max(younger, key=lambda s: s.order, default=None)


def _place_in_batch(item: Scheduled) -> tuple[bool, int, int]:
    is_prefill, order = item.count > 1, item.sequence.order
    return is_prefill, 0 if is_prefill else item.sequence.num_computed, order
