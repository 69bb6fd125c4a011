"""Media spans between encoder pool and engine: media in, words and rows into slots, events out.

What an encoder hears or sees as words becomes token ids here. What it makes as rows passes through,
between the tokens that mark its modality: `start` before the first row, `end` after the last,
`separator` between the groups of a video.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sensorium.core.api import (
    AppendMedia,
    CloseSpan,
    EngineEvent,
    Heard,
    OpenSpan,
    Progress,
    SequenceId,
    SpanClosed,
    SpanId,
)
from sensorium.core.text.grammars import MediaMarks
from sensorium.encoders.base import Encoder, Output, Rows
from sensorium.encoders.media import MediaFrame, Pts
from sensorium.encoders.pool import EncoderPool

if TYPE_CHECKING:
    from sensorium.core.span import Content

ClipKey = tuple[SequenceId, SpanId]


class Slots(Protocol):
    """Where the positions of media spans go; `core.engine.Engine` fits and documents it."""

    def extend_span(self, sequence_id: SequenceId, span_id: SpanId, content: "Content") -> None: ...
    def finish_span(self, sequence_id: SequenceId, span_id: SpanId) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One answer of the pool, as its `on_output` gets it."""

    key: ClipKey
    num_ticks: int
    output: Output
    final: bool


@dataclass(slots=True)
class _Clip:
    """What has been made so far of an open media span."""

    rate_hz: int
    marks: MediaMarks | None
    text: str = ""
    pending: str = ""
    token_ids: list[int] = field(default_factory=list)
    num_positions: int = 0
    has_rows: bool = False
    language: str | None = None
    problem: str | None = None


class Clips:
    """The open media spans of all sequences. Belongs to the engine loop's thread.

    `encode` turns text into the decoder's ids, `marks` are what stands around rows, by modality.
    `pool` must hand its outputs back to `hear`, on this thread.
    """

    def __init__(
        self,
        pool: EncoderPool[ClipKey],
        encoders: Mapping[str, Encoder[Any]],
        slots: Slots,
        encode: Callable[[str], list[int]],
        marks: Mapping[str, MediaMarks],
    ) -> None:
        self._pool = pool
        self._encoders = encoders
        self._slots = slots
        self._encode = encode
        self._marks = marks
        self._clips: dict[ClipKey, _Clip] = {}

    def open(self, request: OpenSpan) -> None:
        """Begin a span's clip."""
        key = (request.sequence_id, request.span_id)
        if key in self._clips:
            return  # the engine refuses a span id that doesn't rise, and drops the sequence
        encoder = self._encoders.get(request.modality)
        self._clips[key] = _Clip(
            rate_hz=encoder.intake.rate_hz if encoder else 0,
            marks=self._marks.get(request.modality),
        )
        self._pool.open(key, request.modality, request.hints, request.content, request.tenant)

    def push(self, request: AppendMedia) -> None:
        """Hand media to the span's encoder; ignored if the span is closed or gone."""
        key = (request.sequence_id, request.span_id)
        clip = self._clips.get(key)
        if clip is not None:
            data = np.frombuffer(request.data, request.dtype).reshape(request.shape)
            frame = MediaFrame(pts=Pts(request.pts), rate_hz=clip.rate_hz, data=data)
            self._pool.push(key, frame)

    def anticipate(self, key: ClipKey) -> None:
        """A span may be about to close."""
        self._pool.anticipate(key)

    def close(self, request: CloseSpan) -> None:
        """No more media comes for a span."""
        self._pool.close((request.sequence_id, request.span_id), request.content)

    def drop(
        self, sequence_id: SequenceId, *, after: SpanId | None, through: SpanId | None = None
    ) -> None:
        """Forget the clips with `after` < span_id ≤ `through`; None is no bound."""
        for key in list(self._clips):
            is_later = after is None or key[1] > after
            if key[0] == sequence_id and is_later and (through is None or key[1] <= through):
                del self._clips[key]
                self._pool.drop(key)

    def newest(self, sequence_id: SequenceId) -> SpanId | None:
        """Return the newest open media span of a sequence."""
        return max((key[1] for key in self._clips if key[0] == sequence_id), default=None)

    def hear(self, encoded: Encoded) -> list[EngineEvent]:
        """Fill slots with what was heard, return what to tell. Nothing, if the clip is gone."""
        clip = self._clips.get(encoded.key)
        if clip is None:
            return []
        sequence_id, span_id = encoded.key
        output = encoded.output
        events: list[EngineEvent] = []
        if encoded.num_ticks:
            events.append(
                Progress(sequence_id=sequence_id, span_id=span_id, num_ticks=encoded.num_ticks)
            )
        clip.language = output.language or clip.language
        clip.problem = output.problem or clip.problem
        for rows in output.rows:
            if len(rows.values):
                self._fill(encoded.key, clip, rows)
        events += self._hear_words(encoded.key, clip, output, final=encoded.final)
        if encoded.final:
            events.append(self._finish(encoded.key, clip))
        return events

    def _fill(self, key: ClipKey, clip: _Clip, rows: Rows) -> None:
        """Put rows into slots, with what stands before them."""
        before: list[int] = []
        if clip.marks is not None:
            mark = clip.marks.separator if clip.has_rows else clip.marks.start
            before = [] if mark is None else [mark]
        if rows.lead:
            before += self._encode(rows.lead)
        if before:
            self._extend(key, clip, tuple(before))
        self._extend(key, clip, rows.values)
        clip.has_rows = True

    def _extend(self, key: ClipKey, clip: _Clip, content: "Content") -> None:
        self._slots.extend_span(*key, content)
        clip.num_positions += len(content)

    def _hear_words(
        self, key: ClipKey, clip: _Clip, output: Output, *, final: bool
    ) -> list[EngineEvent]:
        """Put settled words into slots. A clip begins without the space that leads its first word:
        spoken turns read like typed ones."""
        text = output.text if clip.text else output.text.lstrip()
        pending = "" if final else output.pending
        if not clip.text and not text:
            pending = pending.lstrip()
        if not text and pending == clip.pending:
            return []
        token_ids = tuple(self._encode(text)) if text else ()
        if token_ids:
            self._extend(key, clip, token_ids)
        clip.text += text
        clip.pending = pending
        clip.token_ids += token_ids
        return [
            Heard(
                sequence_id=key[0],
                span_id=key[1],
                text=text,
                pending=pending,
                words=output.words,
                token_ids=token_ids,
            )
        ]

    def _finish(self, key: ClipKey, clip: _Clip) -> SpanClosed:
        del self._clips[key]
        if clip.marks is not None and clip.has_rows:
            self._extend(key, clip, (clip.marks.end,))
        self._slots.finish_span(*key)
        return SpanClosed(
            sequence_id=key[0],
            span_id=key[1],
            num_positions=clip.num_positions,
            transcript=clip.text,
            token_ids=tuple(clip.token_ids),
            language=clip.language,
            problem=clip.problem,
        )
