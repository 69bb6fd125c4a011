"""Ids of a generation to text, addressed to a channel: the incremental inverse of prompt.py."""

from collections.abc import Sequence
from dataclasses import dataclass

from sensorium.core.text.tokenizer import Detokenizer, Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDelta:
    """More text of one channel; "user" is the final answer."""

    channel: str
    text: str


class TextStream:
    """The output of one generation of a ChatML model, which has one channel: "user"."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._detokenizer = Detokenizer(tokenizer)

    def push(self, ids: Sequence[int]) -> list[ChannelDelta]:
        """Add generated ids; returns the text that they complete, never half a character."""
        return _deltas(self._detokenizer.push(ids))

    def finish(self) -> list[ChannelDelta]:
        """Return what was held back when the generation ended."""
        return _deltas(self._detokenizer.finish())


def _deltas(text: str) -> list[ChannelDelta]:
    return [ChannelDelta(channel="user", text=text)] if text else []
