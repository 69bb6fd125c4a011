"""What a model family is: a decoder over a paged cache, and the grammar of its text."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from sensorium.core.batch import Batch
    from sensorium.core.capture import Capture
    from sensorium.core.kv_cache import KVCache


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """What the engine must know of a checkpoint; of core/batch.py's letters V, D, Hk and Dh.

    `windows` has an entry per layer: None if it attends to all positions, else how many it sees
    back from a position, itself included. `placeholder_ids` are the tokens that stand for a slot in
    a prompt's text: they have no meaning without an embedding row, so they are neither taken as
    tokens nor ever generated.
    """

    vocab_size: int
    width: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    windows: tuple[int | None, ...]
    placeholder_ids: tuple[int, ...] = ()

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self.windows)


class Decoder(Protocol):
    """A decoder as the runner sees it; shape letters as in core/batch.py."""

    shape: DecoderShape

    def embed(self, token_ids: "Tensor") -> "Tensor":
        """Look rows up: [T] → [T, D]."""
        ...

    def forward(
        self, x: "Tensor", batch: "Batch", cache: "KVCache", capture: "Capture | None" = None
    ) -> "Tensor":
        """Run all layers over the flat batch, [T, D] → [T, D]; writes its keys and values.

        `capture` is told the residual stream after each layer, and what routers chose.
        """
        ...

    def logits(self, h: "Tensor") -> "Tensor":
        """Final norm and head: [R, D] → [R, V]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """How a family writes its prompts. Control strings are tokens of their own in the vocabulary.

    A message reads `message_open`.format(role) + text + `message_close`; a reply ends at one of
    `stop_tokens`. `frame` names who writes and reads it: core/text/chatml.py or core/text/muse.py.
    `bare_assistant`: what a message of the assistant is that names no recipient.
    """

    message_open: str
    message_close: str
    stop_tokens: tuple[str, ...]
    default_instructions: str
    frame: Literal["chatml", "muse"] = "chatml"
    bare_assistant: Literal["reasoning", "answer"] = "answer"
