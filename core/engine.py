"""The engine: requests in, one step at a time, events out. It sees ids and rows, never words.

Synchronous and deterministic: the same requests before the same steps give the same events. It has
no asyncio and reads no clock. Encoders and the process around it are worker.py's.
"""

import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, assert_never

import torch

from sensorium.core.api import (
    AppendTokens,
    Closed,
    CloseSequence,
    EngineEvent,
    Failed,
    Generate,
    Interrupt,
    OpenSequence,
    OpenSpan,
    Rollback,
    SequenceId,
    SpanId,
)
from sensorium.core.batch import build_batch
from sensorium.core.block_pool import BlockPool
from sensorium.core.block_table import BlockTable
from sensorium.core.choosing import Choosers, choose
from sensorium.core.config import EngineConfig
from sensorium.core.grammar import Grammars
from sensorium.core.layer_groups import most_positions
from sensorium.core.runner import Runner
from sensorium.core.scheduler import LEAST_SLACK, Scheduled, Scheduler
from sensorium.core.sequence import Sequence
from sensorium.core.singly import run_singly
from sensorium.core.span import Content, SequenceFault, check_content

log = logging.getLogger(__name__)

SequenceRequest: TypeAlias = (
    OpenSequence | AppendTokens | OpenSpan | Generate | Interrupt | Rollback | CloseSequence
)
"""What `submit` takes: every request but those that carry media to an encoder."""


@dataclass(frozen=True, slots=True)
class _Extend:
    sequence_id: SequenceId
    span_id: SpanId
    content: Content


@dataclass(frozen=True, slots=True)
class _Finish:
    sequence_id: SequenceId
    span_id: SpanId


_Posted: TypeAlias = (
    AppendTokens | OpenSpan | Generate | Interrupt | Rollback | CloseSequence | _Extend | _Finish
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """How full the engine is after a step; `num_waiting_tokens` are positions still to prefill."""

    num_sequences: int
    num_free_blocks: int
    num_waiting_tokens: int


class Engine:
    """Sequences over one runner.

    `submit`, `extend_span` and `finish_span` may be called from any thread and never block; what
    they post takes effect in the next step. Everything else belongs to the one thread that steps.
    """

    def __init__(
        self,
        runner: Runner,
        config: EngineConfig,
        *,
        seed: int | None = None,
        grammars: Grammars | None = None,
    ) -> None:
        """Serve `runner`. `seed` makes generations that name none repeatable.

        Without `grammars` a generation with a constraint is refused.
        """
        cache = runner.cache
        shape, kept = runner.shape, LEAST_SLACK + config.max_step_tokens
        self.max_positions = min(
            shape.max_positions,
            most_positions(shape.windows, cache.num_blocks, config.block_size, kept),
        )
        """Most positions of a sequence: the model's limit, or the cache's where that is less."""
        self._runner = runner
        self._run = partial(run_singly, runner.run) if config.batch_invariant else runner.run
        self._config = config
        self._pool = BlockPool(cache.num_blocks)
        self._scheduler = Scheduler(
            self._pool,
            block_size=config.block_size,
            max_step_tokens=config.max_step_tokens,
            window_slack=config.window_slack,
        )
        self._sequences: dict[SequenceId, Sequence] = {}
        self._inbox: deque[OpenSequence | _Posted] = deque()
        self._num_opened = 0
        self._choosers = Choosers(
            cache.device, seed=seed, grammars=grammars, barred=shape.placeholder_ids
        )

    # --- any thread -----------------------------------------------------------------------------

    def submit(self, request: SequenceRequest) -> None:
        """Post a request. One for a sequence that has failed or closed is dropped."""
        self._inbox.append(request)

    def extend_span(self, sequence_id: SequenceId, span_id: SpanId, content: Content) -> None:
        """Append positions to a media span: ids that the engine embeds, or rows [n, D] as they are.

        The span may still wait behind other requests; it keeps what it is given. Ignored if the
        span or the sequence is gone.
        """
        self._inbox.append(_Extend(sequence_id, span_id, content))

    def finish_span(self, sequence_id: SequenceId, span_id: SpanId) -> None:
        """Close a media span after its encoder has flushed; requests behind it go on.

        The engine publishes nothing for it: whoever called `extend_span` knows how many positions
        it gave, and publishes `SpanClosed`.
        """
        self._inbox.append(_Finish(sequence_id, span_id))

    # --- the stepping thread ----------------------------------------------------------------------

    def has_work(self) -> bool:
        """Tell whether a step would do anything."""
        return bool(self._inbox) or any(s.num_due for s in self._sequences.values())

    def step(self, now: float) -> list[EngineEvent]:
        """Take in what was posted, advance sequences by one batch, return what happened.

        `now` is in seconds of any clock that doesn't run backwards; it only decides which idle
        sequence gives up its cache first. A sequence's own fault ends in `Failed`; an exception
        means that the engine itself is broken and must not be used again.
        """
        events = self._drain()
        scheduled = self._scheduler.schedule(self._sequences.values(), now)
        if scheduled:
            self._runner.cache.clear(self._scheduler.new_blocks)
            batch = build_batch(
                scheduled,
                block_size=self._config.block_size,
                dtype=self._runner.dtype,
                device=self._runner.cache.device,
            )
            logits = self._run(batch)
            events += self._advance(scheduled, logits)
        return events

    def num_to_prefill(self, sequence_id: SequenceId) -> int:
        """Positions of a sequence that the next steps must still compute."""
        return self._sequences[sequence_id].num_to_prefill

    def stats(self) -> EngineStats:
        """Count sequences, free blocks and waiting positions."""
        return EngineStats(
            num_sequences=len(self._sequences),
            num_free_blocks=self._pool.num_free,
            num_waiting_tokens=sum(s.num_due for s in self._sequences.values()),
        )

    # --- inside a step ----------------------------------------------------------------------------

    def _drain(self) -> list[EngineEvent]:
        """Apply what was posted before this step, in order."""
        events: list[EngineEvent] = []
        for _ in range(len(self._inbox)):
            request = self._inbox.popleft()
            if isinstance(request, OpenSequence):
                events += self._open(request)
            elif sequence := self._sequences.get(request.sequence_id):
                events += self._guarded(sequence, request)
        return events

    def _open(self, request: OpenSequence) -> list[EngineEvent]:
        """Create a sequence, empty or as a fork, if there is room."""
        sequence_id = request.sequence_id
        if sequence_id in self._sequences:
            return [self._fail(self._sequences[sequence_id], "bad_request", "opened twice")]
        if len(self._sequences) >= self._config.max_sequences:
            limit = f"the engine serves at most {self._config.max_sequences} sequences"
            return [Failed(sequence_id=sequence_id, code="engine_busy", message=limit)]
        self._num_opened += 1
        groups = self._runner.cache.groups
        sequence = Sequence(
            sequence_id,
            tables=[BlockTable(group.window, self._config.block_size) for group in groups],
            max_positions=self.max_positions,
            order=self._num_opened,
        )
        self._sequences[sequence_id] = sequence
        if request.parent is None:
            return []
        parent = self._sequences.get(request.parent)
        if parent is None:
            return [self._fail(sequence, "bad_request", f"no sequence {request.parent} to fork")]
        try:
            parent.fork(sequence, request.through)
        except SequenceFault as fault:
            return [self._fail(sequence, fault.code, str(fault))]
        self._scheduler.share(parent, sequence)
        return []

    def _guarded(self, sequence: Sequence, request: _Posted | None) -> list[EngineEvent]:
        """Apply a request, if any, and all that can follow it; a fault ends the sequence alone."""
        try:
            events = [] if request is None else self._apply(sequence, request)
            if sequence.sequence_id in self._sequences:
                events += sequence.settle(self._choosers.new)
            return events
        except SequenceFault as fault:
            return [self._fail(sequence, fault.code, str(fault))]
        except Exception:  # a fault of one sequence ends that one alone
            log.exception("sequence %s failed", sequence.sequence_id)
            return [self._fail(sequence, "internal", "the engine failed on this sequence")]

    def _apply(self, sequence: Sequence, request: _Posted) -> list[EngineEvent]:
        """Hand a request to its sequence."""
        match request:
            case AppendTokens():
                check_content(request.token_ids, self._runner.shape)
                sequence.put(request)
            case OpenSpan():
                sequence.put(request)
            case Generate():
                self._choosers.check(request.sampling)
                sequence.put(request)
            case _Extend():
                check_content(request.content, self._runner.shape)
                sequence.extend(request.span_id, request.content)
            case _Finish():
                sequence.finish(request.span_id)
            case Interrupt():
                return sequence.interrupt()
            case Rollback():
                events = sequence.roll_back(request.keep_through, request.position)
                self._scheduler.settle(sequence)
                return events
            case CloseSequence():
                events = sequence.roll_back(None)
                self._remove(sequence)
                return [*events, Closed(sequence_id=sequence.sequence_id)]
            case _:
                assert_never(request)
        return []

    def _advance(self, scheduled: list[Scheduled], logits: torch.Tensor) -> list[EngineEvent]:
        """Count what was computed and give each sampled sequence its next token."""
        sampled = [item.sequence.generation for item in scheduled if item.samples]
        choices = iter(choose(logits, [g.chooser for g in sampled if g is not None]))
        events: list[EngineEvent] = []
        for item in scheduled:
            choice = next(choices) if item.samples else None
            # A sequence whose grammar isn't compiled yet computes its last position again.
            again = item.samples and choice is None
            self._scheduler.advance(item.sequence, item.count - again)
            if isinstance(choice, SequenceFault):
                events.append(self._fail(item.sequence, choice.code, str(choice)))
            elif choice is not None:
                events += item.sequence.accept(choice.token_id, choice.logprobs)
                events += self._guarded(item.sequence, None)  # what waited behind a finished one
        return events

    def _fail(self, sequence: Sequence, code: str, message: str) -> Failed:
        """End a sequence by its own fault."""
        self._remove(sequence)
        return Failed(sequence_id=sequence.sequence_id, code=code, message=message)

    def _remove(self, sequence: Sequence) -> None:
        """Forget a sequence and free its blocks."""
        self._scheduler.release(sequence)
        del self._sequences[sequence.sequence_id]
