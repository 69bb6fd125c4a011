"""One sequence: its positions and spans, the requests that wait, the generation that runs.

Plain Python: what a request does and when it takes effect. Blocks are scheduler.py's.
"""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from sensorium.core.api import (
    AppendTokens,
    EngineEvent,
    Generate,
    Generated,
    OpenSpan,
    SamplingParams,
    SequenceId,
    SpanId,
    TokenLogprobs,
    TurnEnded,
    Usage,
)
from sensorium.core.block_table import BlockTable
from sensorium.core.span import SLOT, Content, Generation, Media, SequenceFault, Span

if TYPE_CHECKING:
    import torch

    from sensorium.core.choosing import Chooser

Waiting: TypeAlias = AppendTokens | OpenSpan | Generate
Reason: TypeAlias = Literal["stop", "length", "interrupted"]


class Sequence:
    """Positions, what of them is cached, and what happens next.

    `token_ids` has one entry per position; `rows` maps the positions that are `SLOT` to their
    embedding rows. `tables` say which cache blocks each layer group has; the first `num_computed`
    positions are valid in them, unless `is_cut`: then positions were dropped or are to be computed
    again, and the scheduler must find where computing can go on. A `dormant` sequence has lost its
    blocks while it had nothing to do; it is recomputed when something is added to it.
    """

    def __init__(
        self,
        sequence_id: SequenceId,
        *,
        tables: Items[BlockTable],
        max_positions: int,
        order: int,
    ) -> None:
        """Start empty. `order` counts sequences as they are opened."""
        self.sequence_id = sequence_id
        self.order = order
        self.token_ids: list[int] = []
        self.rows: dict[int, torch.Tensor] = {}
        self.tables = tables
        self.num_computed = 0
        self.is_cut = False
        self.generation: Generation | None = None
        self.dormant = False
        self.last_step = 0
        self.last_used = 0.0
        self._max_positions = max_positions
        self._spans: list[Span] = []
        self._newest_span_id: int | None = None
        self._waiting: deque[Waiting] = deque()
        self._media: dict[SpanId, Media] = {}

    @property
    def num_to_prefill(self) -> int:
        """Positions whose keys and values are not cached (any more)."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_due(self) -> int:
        """How many of these the next steps should compute: none while the sequence is dormant."""
        return 0 if self.dormant else self.num_to_prefill

    @property
    def turn_starts(self) -> list[int]:
        """Where the last two turns begin: a conversation is rarely rolled back further."""
        starts: list[int] = []
        for span in reversed(self._spans):
            if span.is_turn:
                starts.append(span.start)
                if len(starts) == 2:
                    break
        return starts

    # --- orders ---------------------------------------------------------------------------------

    def put(self, request: Waiting) -> None:
        """Queue a request behind the others. SequenceFault for a span id that doesn't rise."""
        if self._newest_span_id is not None and request.span_id <= self._newest_span_id:
            raise SequenceFault(
                "bad_request",
                f"span ids must rise: got {request.span_id} after {self._newest_span_id}",
            )
        self._newest_span_id = request.span_id
        self._waiting.append(request)
        if isinstance(request, OpenSpan):
            self._media[request.span_id] = Media(request.span_id)

    def extend(self, span_id: SpanId, content: Content) -> None:
        """Add to a media span, open or still waiting; ignored if the span has been dropped."""
        media = self._media.get(span_id)
        if media is not None and not media.finished:
            media.content.append(content)

    def finish(self, span_id: SpanId) -> None:
        """Nothing more comes for a media span; ignored if the span has been dropped."""
        media = self._media.get(span_id)
        if media is not None:
            media.finished = True

    def settle(self, new_chooser: "Callable[[SamplingParams], Chooser]") -> list[EngineEvent]:
        """Let every request take effect whose turn has come. Raises SequenceFault."""
        events: list[EngineEvent] = []
        while self.generation is None and self._fill_open_media() and self._waiting:
            request = self._waiting.popleft()
            match request:
                case AppendTokens():
                    self._begin(request.span_id, is_turn=False)
                    self._append_tokens(request.token_ids)
                case OpenSpan():
                    self._begin(request.span_id)
                case Generate():
                    events += self._start(request, new_chooser(request.sampling))
                case _:
                    assert_never(request)
        return events

    def interrupt(self) -> list[EngineEvent]:
        """End the running or first waiting generation; requests behind it are dropped."""
        if self.generation is not None:
            ended = self._end("interrupted")
            return [ended, *self._drop_waiting(ended.span_id)]
        for request in self._waiting:
            if isinstance(request, Generate):
                return self._drop_waiting(request.span_id - 1)
        return []

    def roll_back(
        self, keep_through: SpanId | None, position: int | None = None
    ) -> list[EngineEvent]:
        """Drop every span after `keep_through` (None: all), open, running and waiting ones too.

        Of the rest at most `position` positions stay. SequenceFault if it lies in an open span.
        """
        keep = float("-inf") if keep_through is None else keep_through
        events: list[EngineEvent] = []
        if self.generation is not None and self.generation.span_id > keep:
            events.append(self._end("interrupted"))
        events += self._drop_waiting(keep)
        while self._spans and self._spans[-1].span_id > keep:
            self._cut(self._spans.pop().start)
        if position is not None and position < len(self.token_ids):
            events += self._cut_inside(position)
        return events

    def fork(self, child: "Sequence", through: SpanId | None) -> None:
        """Fill an empty sequence with this one's spans up to `through` (None: all there are).

        SequenceFault if the last of them is still open. The cache is the scheduler's part.
        """
        spans = [s for s in self._spans if through is None or s.span_id <= through]
        last = spans[-1].span_id if spans else None
        is_open = last in self._media or (self.generation and self.generation.span_id == last)
        if is_open or (through is not None and any(r.span_id <= through for r in self._waiting)):
            raise SequenceFault("bad_request", "what is still open or waiting can't be forked")
        end = self._spans[len(spans)].start if len(spans) < len(self._spans) else None
        child.token_ids = self.token_ids[:end]
        child.rows = {p: row for p, row in self.rows.items() if p < len(child.token_ids)}
        child._spans = spans
        child._newest_span_id = last

    # --- what a step reports --------------------------------------------------------------------

    def accept(self, token_id: int, logprobs: tuple[TokenLogprobs, ...] = ()) -> list[EngineEvent]:
        """Take the next id of the running generation, with what `Generated` says of it."""
        generation = self.generation
        assert generation is not None
        if token_id in generation.sampling.stop_token_ids:
            return [self._end("stop")]
        self.token_ids.append(token_id)
        generation.num_output_tokens += 1
        span_id = generation.span_id
        generated = Generated(
            sequence_id=self.sequence_id, span_id=span_id, token_ids=(token_id,), logprobs=logprobs
        )
        full = len(self.token_ids) >= self._max_positions
        if full or generation.num_output_tokens >= generation.sampling.max_tokens:
            return [generated, self._end("length")]
        return [generated]

    # --- helpers --------------------------------------------------------------------------------

    def _begin(self, span_id: SpanId, *, is_turn: bool = True) -> None:
        self._spans.append(Span(span_id, len(self.token_ids), is_turn))

    def _fill_open_media(self) -> bool:
        """Turn what an open media span holds into positions; tell whether no span is open now."""
        media = self._media.get(self._spans[-1].span_id) if self._spans else None
        if media is None:
            return True
        while media.content:
            content = media.content.popleft()
            if isinstance(content, tuple):
                self._append_tokens(content)
            else:
                self._append_rows(content)
        if media.finished:
            del self._media[media.span_id]
        return media.finished

    def _append_tokens(self, token_ids: tuple[int, ...]) -> None:
        self._make_room(len(token_ids))
        self.token_ids.extend(token_ids)

    def _append_rows(self, rows: "torch.Tensor") -> None:
        self._make_room(len(rows))
        self.rows.update(enumerate(rows, start=len(self.token_ids)))
        self.token_ids.extend([SLOT] * len(rows))

    def _make_room(self, count: int) -> None:
        self.dormant = False
        wanted = len(self.token_ids) + count
        if wanted > self._max_positions:
            raise SequenceFault(
                "context_full",
                f"the sequence would have {wanted} positions; the limit is {self._max_positions}",
            )

    def _start(self, request: Generate, chooser: "Chooser") -> list[EngineEvent]:
        if not self.token_ids:
            raise SequenceFault("bad_request", "nothing to generate from: the sequence is empty")
        self._begin(request.span_id)
        self.generation = Generation(
            span_id=request.span_id,
            sampling=request.sampling,
            chooser=chooser,
            num_prompt_tokens=len(self.token_ids),
            num_uncached_tokens=self.num_to_prefill,
        )
        if len(self.token_ids) >= self._max_positions:
            return [self._end("length")]
        self.dormant = False
        # The last position must pass through the model (again) to yield logits.
        self._compute_from(len(self.token_ids) - 1)
        return []

    def _end(self, reason: Reason) -> TurnEnded:
        generation = self.generation
        assert generation is not None
        self.generation = None
        usage = Usage(
            num_prompt_tokens=generation.num_prompt_tokens,
            num_uncached_tokens=generation.num_uncached_tokens,
            num_output_tokens=generation.num_output_tokens,
        )
        return self._turn_ended(generation.span_id, reason, usage)

    def _turn_ended(self, span_id: SpanId, reason: Reason, usage: Usage) -> TurnEnded:
        return TurnEnded(sequence_id=self.sequence_id, span_id=span_id, reason=reason, usage=usage)

    def _drop_waiting(self, keep: float) -> list[EngineEvent]:
        """Drop waiting requests of spans after `keep`; a generation among them ends here."""
        nothing = Usage(num_prompt_tokens=0, num_uncached_tokens=0, num_output_tokens=0)
        events: list[EngineEvent] = [
            self._turn_ended(request.span_id, "interrupted", nothing)
            for request in self._waiting
            if isinstance(request, Generate) and request.span_id > keep
        ]
        self._waiting = deque(r for r in self._waiting if r.span_id <= keep)
        self._media = {k: m for k, m in self._media.items() if k <= keep}
        return events

    def _cut_inside(self, position: int) -> list[EngineEvent]:
        """Cut the last spans at a position; a generation among them ends here."""
        events: list[EngineEvent] = [] if self.generation is None else [self._end("interrupted")]
        while self._spans[-1].start > position:
            self._cut(self._spans.pop().start)
        if self._spans[-1].span_id in self._media:
            raise SequenceFault("bad_request", "an open media span can't be cut in its middle")
        self._cut(position)
        return events

    def _cut(self, start: int) -> None:
        for position in range(start, len(self.token_ids)):
            self.rows.pop(position, None)
        del self.token_ids[start:]
        self._compute_from(start)

    def _compute_from(self, position: int) -> None:
        if position < self.num_computed:
            self.num_computed = position
            self.is_cut = True
