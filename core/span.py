"""The parts of a sequence: its spans, the media span that is being filled, the generation."""

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, Union

from sensorium.core.api import SamplingParams, SpanId
from sensorium.core.errors import CoreError

if TYPE_CHECKING:
    import torch

    from sensorium.core.choosing import Chooser
    from sensorium.core.models.base import DecoderShape

SLOT = -1
"""Stands in `token_ids` at a position that holds an embedding row instead of a token."""

Content: TypeAlias = Union[tuple[int, ...], "torch.Tensor"]
"""What a media span is filled with: token ids, or embedding rows [n, D]."""


class SequenceFault(CoreError):
    """The sequence can't go on; `code` as in `Failed`."""

    def __init__(self, code: str, message: str) -> None:
        """Keep the code beside the message."""
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Span:
    """A run of positions from one place; it ends where the next span begins.

    `is_turn`: media or the model's own words, so that a conversation may be rolled back to it.
    """

    span_id: SpanId
    start: int
    is_turn: bool


@dataclass(slots=True)
class Media:
    """A media span that its encoder still fills, and what has not become positions yet."""

    span_id: SpanId
    content: deque[Content] = field(default_factory=deque)
    finished: bool = False


@dataclass(slots=True)
class Generation:
    """The running `Generate`, and what chooses its tokens."""

    span_id: SpanId
    sampling: SamplingParams
    chooser: "Chooser"
    num_prompt_tokens: int
    num_uncached_tokens: int
    num_output_tokens: int = 0


def check_content(content: Content, shape: "DecoderShape") -> None:
    """Refuse what the model has no position for, before it can spoil a batch."""
    if isinstance(content, tuple):
        if content and not 0 <= min(content) <= max(content) < shape.vocab_size:
            raise SequenceFault(
                "bad_request", f"token ids must be from 0 to {shape.vocab_size - 1}"
            )
        for token_id in shape.placeholder_ids:
            if token_id in content:
                raise SequenceFault(
                    "bad_request", f"id {token_id} stands for a slot, which needs an embedding row"
                )
    elif content.ndim != 2 or content.shape[1] != shape.width:
        found = list(content.shape)
        raise SequenceFault("bad_request", f"rows must be [n, {shape.width}], got {found}")
    elif not bool(content.isfinite().all()):
        raise SequenceFault("bad_request", "rows must be finite numbers")
