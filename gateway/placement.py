"""Where each unit of the prompt stands in an engine sequence, and the requests that change it.

The engine is told the difference only: what already stands there, in order, is kept; from the first
difference on the sequence is rolled back and appended anew. A unit that is still being spoken or
written grows at the tail and is kept like any other once it is complete.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sensorium.core.api import (
    Anticipate,
    AppendMedia,
    AppendTokens,
    CloseSequence,
    CloseSpan,
    EngineRequest,
    Generate,
    OpenSequence,
    OpenSpan,
    Rollback,
    SamplingParams,
    SequenceId,
    SpanId,
)
from sensorium.encoders.base import ClipHints
from sensorium.gateway.conversation import Unit
from sensorium.gateway.media import Medium


@dataclass(slots=True)
class _Placed:
    key: tuple[str, str]
    last_span: SpanId


class Placement:
    """Mirror of one engine sequence. Opens it on first use; `lost()` when the engine dropped it.

    What is encoded for a `tenant` is found again by nobody else.
    """

    def __init__(
        self,
        new_sequence_id: Callable[[], SequenceId],
        ask: Callable[[EngineRequest], None],
        tenant: str = "",
    ) -> None:
        self._new_sequence_id = new_sequence_id
        self._ask = ask
        self._tenant = tenant
        self._media: dict[SpanId, Medium] = {}
        self._placed: list[_Placed] = []
        self._num_spans = 0  # span ids rise for ever, also past a rollback
        self._tail: SpanId | None = None  # the last span that stands in the sequence
        self.sequence_id: SequenceId | None = None

    def sync(self, units: list[Unit]) -> None:
        """Make the sequence hold exactly `units`."""
        self._open()
        same = 0
        for placed, unit in zip(self._placed, units, strict=False):
            if placed.key != unit.key:
                break
            same += 1
        self._keep(same)
        for unit in units[same:]:
            for piece in unit.pieces:
                span = self.place(piece) if isinstance(piece, Medium) else self.append(piece)
            self._placed.append(_Placed(unit.key, span))

    def medium_at(self, span: SpanId) -> Medium | None:
        """Return the medium whose span it is, once: the engine tells of it when it is encoded."""
        return self._media.pop(span, None)

    def append(self, token_ids: tuple[int, ...]) -> SpanId:
        """Append tokens at the tail: a message's head, or what stands between its parts."""
        span = self._next_span()
        self._ask(AppendTokens(sequence_id=self._id(), span_id=span, token_ids=token_ids))
        return span

    def place(self, medium: Medium, *, live: bool = False) -> SpanId:
        """Append a whole clip as a span of its own. `live`: somebody is talking meanwhile."""
        sequence_id, span = self._id(), self._next_span()
        self._media[span] = medium
        self._ask(
            OpenSpan(
                sequence_id=sequence_id,
                span_id=span,
                modality=medium.modality,
                hints=ClipHints(live=live),
                content=medium.content,
                tenant=self._tenant,
            )
        )
        for piece in medium.pieces:
            self._ask(
                AppendMedia(
                    sequence_id=sequence_id,
                    span_id=span,
                    pts=piece.pts,
                    shape=piece.shape,
                    dtype=piece.dtype,
                    data=piece.data,
                )
            )
        self._ask(CloseSpan(sequence_id=sequence_id, span_id=span, content=medium.content))
        return span

    def open_media(self, hints: ClipHints) -> SpanId:
        """Open a span for sound at the tail, which the encoder fills as it comes."""
        span = self._next_span()
        self._ask(OpenSpan(sequence_id=self._id(), span_id=span, hints=hints, tenant=self._tenant))
        return span

    def anticipate_end(self, span: SpanId) -> None:
        """The open span may be about to close."""
        self._ask(Anticipate(sequence_id=self._id(), span_id=span))

    def close_media(self, span: SpanId, content: str = "") -> None:
        """No more sound comes for the open span; `content` names its sound, as in `CloseSpan`."""
        self._ask(CloseSpan(sequence_id=self._id(), span_id=span, content=content))

    def generate(self, head: tuple[int, ...], sampling: SamplingParams) -> SpanId:
        """Let the model write a message at the tail."""
        self.append(head)
        span = self._next_span()
        self._ask(Generate(sequence_id=self._id(), span_id=span, sampling=sampling))
        return span

    def complete(self, key: tuple[str, str], tail: tuple[int, ...]) -> None:
        """End the message at the tail and keep it as the unit `key`."""
        self._placed.append(_Placed(key, self.append(tail)))

    def discard_tail(self) -> None:
        """Drop what stands after the last complete unit."""
        if self.sequence_id is not None:
            self._keep(len(self._placed))

    def lost(self) -> None:
        """The engine no longer has the sequence; the next use opens another."""
        self.sequence_id = None
        self._media.clear()
        self._placed.clear()
        self._num_spans = 0
        self._tail = None

    def close(self) -> None:
        """Give the sequence back."""
        if self.sequence_id is not None:
            self._ask(CloseSequence(sequence_id=self.sequence_id))
            self.lost()

    def _open(self) -> None:
        if self.sequence_id is None:
            self.sequence_id = self._new_sequence_id()
            self._ask(OpenSequence(sequence_id=self.sequence_id))

    def _id(self) -> SequenceId:
        assert self.sequence_id is not None, "sync() opens the sequence"
        return self.sequence_id

    def _next_span(self) -> SpanId:
        self._num_spans += 1
        self._tail = SpanId(self._num_spans)
        return self._tail

    def _keep(self, num_units: int) -> None:
        kept = self._placed[num_units - 1].last_span if num_units else None
        if kept != self._tail:
            self._ask(Rollback(sequence_id=self._id(), keep_through=kept))
            self._tail = kept
            self._media = {s: m for s, m in self._media.items() if kept and s <= kept}
        del self._placed[num_units:]
