"""What every encoder is: frames of many streams in, rows or words out, state passed in."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from sensorium.encoders.media import AudioFrame

if TYPE_CHECKING:
    import torch

State = TypeVar("State")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One heard word. Times are seconds since the start of the clip; `probability` is in [0, 1]."""

    text: str
    start_s: float
    end_s: float
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipHints:
    """What the caller knows about a clip before it is encoded.

    `live`: sound arrives as it is spoken and partial words are wanted; otherwise only the result
    counts and the encoder may take the cheapest and most accurate way.
    `language`: ISO 639-1 code, or None to let the encoder decide. `prompt`: text before the clip.
    """

    live: bool = True
    language: str | None = None
    prompt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one `push` or `flush` adds to a clip.

    Encoders that make embeddings fill `rows` ([n, D]); encoders that hear words fill `text`: the
    words settled by this call, to be appended to what was settled before and never changed again
    (it begins with a space where the language writes one), with their times in `words`.
    `pending` is the unsettled rest after it, and replaces the former `pending`.
    `language` is the ISO 639-1 code of the clip where the encoder knows it. `problem` is None or a
    sentence for the user: why this clip can't be heard well (for example a language that the model
    doesn't know); with a problem, `text` holds nothing that would be garbage.
    """

    rows: "torch.Tensor | None" = None
    text: str = ""
    words: tuple[Word, ...] = ()
    pending: str = ""
    language: str | None = None
    problem: str | None = None
    encoder: str = ""


class Encoder(Protocol, Generic[State]):
    """One modality. Calls are batched over streams: element i of every list belongs to stream i."""

    name: str
    rate_hz: int

    def open(self, hints: ClipHints) -> State:
        """Return the state of a new clip."""
        ...

    def ready(self, state: State, num_samples: int) -> bool:
        """Tell whether a clip with `num_samples` not yet pushed has reached its next grid point."""
        ...

    def push(self, frames: list[AudioFrame], states: list[State]) -> list[Output]:
        """Encode one more frame of each stream; states are updated in place."""
        ...

    def anticipate(self, states: list[State]) -> None:
        """Prepare a `flush` that may follow soon, with nothing but silence before it.

        Changes nothing that `push` and `flush` return, only how long `flush` takes.
        """
        ...

    def flush(self, states: list[State]) -> list[Output]:
        """End each clip: everything still pending is settled. The states are spent."""
        ...
