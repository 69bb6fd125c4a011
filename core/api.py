"""The engine's vocabulary: requests in, events out; plain values that cross a process border.

A sequence is a line of positions made of spans. Every request that adds positions carries a
`span_id` chosen by the caller, rising within a sequence; `Rollback` names the last span to keep.
Requests of one sequence take effect in order: what follows an open media span waits until the
encoder has flushed it. `Rollback`, `Interrupt` and `CloseSequence` act at once and also drop
requests of later spans that still wait.
"""

import math
from dataclasses import dataclass, field
from typing import Literal, NewType

from sensorium.core.errors import EngineBusy as EngineBusy
from sensorium.core.model_info import EngineLoad as EngineLoad
from sensorium.core.model_info import ModelInfo as ModelInfo
from sensorium.core.sampling_params import Constraint as Constraint
from sensorium.core.sampling_params import SamplingParams as SamplingParams
from sensorium.core.sampling_params import TokenLogprobs as TokenLogprobs
from sensorium.encoders.base import ClipHints, Word

SequenceId = NewType("SequenceId", int)
SpanId = NewType("SpanId", int)


# --- requests -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSequence:
    """Create a sequence: an empty one, or a fork. First request of its id.

    A fork begins with the spans of `parent` up to and including `through` (None: all that stand in
    it now), whose cache it shares; from then on neither sees what happens to the other. The span
    ids of a fork rise from there. An open media span can't be forked.
    """

    sequence_id: SequenceId
    parent: SequenceId | None = None
    through: SpanId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendTokens:
    """Append a span of token ids; prefilled in the next steps."""

    sequence_id: SequenceId
    span_id: SpanId
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpan:
    """Open a media span at the end of the sequence; its encoder fills slots as media arrives.

    `content` names a whole clip that is known already, by a hash of all its frames: if it was
    encoded before for the same `tenant`, its slots are filled at once and its media is ignored.
    "" for a clip that is still being recorded.
    """

    sequence_id: SequenceId
    span_id: SpanId
    modality: str = "audio"
    hints: ClipHints = field(default_factory=ClipHints)
    content: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendMedia:
    """Media for an open span: a frame as `encoders.media.MediaFrame` defines it, in native bytes.

    `data` holds `shape` values of `dtype`; `shape[0]` ticks begin at `pts`, counted at the rate of
    the encoder's intake since the span was opened.
    """

    sequence_id: SequenceId
    span_id: SpanId
    pts: int
    shape: tuple[int, ...]
    dtype: Literal["float32", "uint8"] = "float32"
    data: bytes

    @property
    def num_bytes(self) -> int:
        """How many bytes `data` must have."""
        return math.prod(self.shape) * (4 if self.dtype == "float32" else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anticipate:
    """The speaker has paused, so the open span may be about to close: get its end ready.

    Costs an encoder pass where the encoder has time for it; wasted if the speaker goes on.
    """

    sequence_id: SequenceId
    span_id: SpanId


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSpan:
    """No more media comes; the encoder settles what is pending, then `SpanClosed` is published.

    `content` names the whole clip as in `OpenSpan`, for the next time that it is wanted.
    """

    sequence_id: SequenceId
    span_id: SpanId
    content: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Sample a span of tokens once all before it is prefilled. Ends with `TurnEnded`.

    A sampled stop token ends the span and is not part of it.
    """

    sequence_id: SequenceId
    span_id: SpanId
    sampling: SamplingParams = field(default_factory=SamplingParams)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """Stop the running or waiting `Generate`; it ends with `TurnEnded(reason="interrupted")`.

    Without one it does nothing.
    """

    sequence_id: SequenceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Drop every span with an id above `keep_through` (None: all), open and waiting ones too.

    `position` drops the end of what is left as well: that many positions stay at most, so that an
    answer or a spoken turn can be cut in its middle. A span cut so takes nothing any more.
    """

    sequence_id: SequenceId
    keep_through: SpanId | None
    position: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSequence:
    """Drop the sequence and free its blocks; `Closed` follows."""

    sequence_id: SequenceId


EngineRequest = (
    OpenSequence
    | AppendTokens
    | OpenSpan
    | AppendMedia
    | Anticipate
    | CloseSpan
    | Generate
    | Interrupt
    | Rollback
    | CloseSequence
)


# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Positions of one generation: all before it, those of them not prefilled anew for it, output.

    `num_uncached_tokens` = positions that were still to prefill when the `Generate` became the
    next thing to do (the part of the prompt the user waited for).
    """

    num_prompt_tokens: int
    num_uncached_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The encoder has taken `num_ticks` more ticks of this span: its queue has room."""

    sequence_id: SequenceId
    span_id: SpanId
    num_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Words of an open span. `text` is newly settled; `pending` replaces the former one.

    `token_ids` are the ids of `text` that went into slots.
    """

    sequence_id: SequenceId
    span_id: SpanId
    text: str
    pending: str
    words: tuple[Word, ...]
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanClosed:
    """A media span is complete: `num_positions` in the sequence, `transcript` = all settled text.

    `problem` is None or a sentence that says why it couldn't be heard or seen well.
    """

    sequence_id: SequenceId
    span_id: SpanId
    num_positions: int
    transcript: str
    token_ids: tuple[int, ...]
    language: str | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One or more token ids of the running generation, in order, without the stop token.

    `logprobs`, where they were asked for, has an entry per token.
    """

    sequence_id: SequenceId
    span_id: SpanId
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The generation is over; `length` also when the context is full."""

    sequence_id: SequenceId
    span_id: SpanId
    reason: Literal["stop", "length", "interrupted"]
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The sequence is gone, with its blocks. Codes: `context_full`, `engine_lost`, `internal`, …"""

    sequence_id: SequenceId
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Answer to `CloseSequence`; nothing follows for this id."""

    sequence_id: SequenceId


EngineEvent = Progress | Heard | SpanClosed | Generated | TurnEnded | Failed | Closed
