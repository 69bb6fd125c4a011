"""What every encoder is: frames of many streams in, rows or words out, state passed in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sensorium.encoders.media import Intake, MediaFrame

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
class Rows:
    """Embeddings for consecutive positions: `values` [n, D].

    Row i is of the media from `start_s + i·step_s` on; a `step_s` of 0 says that all rows are of
    one moment (a picture). `lead` is text that stands right before them in the sequence, as tokens
    (the time of a group of video frames); such a group is divided from the one before it.
    """

    values: "torch.Tensor"
    start_s: float = 0.0
    step_s: float = 0.0
    lead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one `push` or `flush` adds to a clip.

    Encoders that make embeddings fill `rows`; encoders that hear or see words fill `text`: the
    words settled by this call, to be appended to what was settled before and never changed again
    (it begins with a space where the language writes one), with their times in `words`.
    `pending` is the unsettled rest after it, and replaces the former `pending`.
    `language` is the ISO 639-1 code of the clip where the encoder knows it. `problem` is None or a
    sentence for the user: why this clip can't be heard well (for example a language that the model
    doesn't know); with a problem, `text` holds nothing that would be garbage.
    """

    rows: tuple[Rows, ...] = ()
    text: str = ""
    words: tuple[Word, ...] = ()
    pending: str = ""
    language: str | None = None
    problem: str | None = None
    encoder: str = ""


class Encoder(Protocol, Generic[State]):
    """One modality. Calls are batched over streams: element i of every list belongs to stream i.

    `revision` changes whenever the same media would be encoded differently: other weights, other
    preprocessing. At most `max_batch` streams are worth a common call.
    """

    name: str
    revision: str
    intake: Intake
    max_batch: int

    def open(self, hints: ClipHints) -> State:
        """Return the state of a new clip."""
        ...

    def ready(self, state: State, num_ticks: int) -> bool:
        """Tell whether a clip with `num_ticks` not yet pushed has reached its next grid point."""
        ...

    def push(self, frames: list[tuple[MediaFrame, ...]], states: list[State]) -> list[Output]:
        """Encode more frames of each stream, in order; states are updated in place.

        Frames without a gap between them come as one. They fit the `intake`.
        If it raises, it has left the states alone: each stream is then pushed again by itself.
        """
        ...

    def anticipate(self, states: list[State]) -> None:
        """Prepare a `flush` that may follow soon, with nothing but silence before it.

        Changes nothing that `push` and `flush` return, only how long `flush` takes.
        """
        ...

    def flush(self, states: list[State]) -> list[Output]:
        """End each clip: everything still pending is settled. The states are spent."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSources:
    """Where encoders come from: the decoder's checkpoint, which may hold some, or models apart.

    `config` is the checkpoint's config.json, `folder` the directory it lies in, `tensor` returns
    one of its tensors by name. `model` returns the directory of a further model by its role
    ("speech", "pictures"), None if the settings name none. `threads` cores may be used; rows are
    computed in `dtype`.
    """

    config: Mapping[str, Any]
    folder: Path
    tensor: "Callable[[str], torch.Tensor]"
    model: Callable[[str], Path | None]
    threads: int
    dtype: "torch.dtype"
