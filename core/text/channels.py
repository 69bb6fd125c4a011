"""Ids of a generation to text, addressed to channels: the incremental inverse of a prompt.

A reply is a row of messages, each to one channel: "user" (final answer), "self" (reasoning),
"commentary" (progress notes), or a tool's name. What is to no channel we know goes to "unknown",
and nobody is shown it. Streams hand the same out however the ids are split.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sensorium.core.text.chatml_tools import CallSplitter
from sensorium.core.text.tokenizer import Detokenizer, Tokenizer
from sensorium.core.text.tools import CallMade, CallOutcome, CallRefused, ToolSet

End = Literal["eom", "eot", "cut"]
"""A message's end: the speaker goes on, the turn is over, or it was broken off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBegan:
    """A message to a channel begins; `header` is what the model wrote of it."""

    channel: str
    header: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDelta:
    """More text of the open message, which is to `channel`; "user" is the final answer."""

    channel: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEnded:
    """The open message is over. The calls of one to a tool come before this."""

    channel: str
    end: End


ChannelEvent = MessageBegan | ChannelDelta | MessageEnded | CallMade | CallRefused


class ChannelStream(Protocol):
    """The output of one generation."""

    def push(self, ids: Sequence[int]) -> list[ChannelEvent]:
        """Add generated ids; returns what they complete, never half a character."""
        ...

    def finish(self, *, cut: bool = False) -> list[ChannelEvent]:
        """End the reply: at a stop token, or `cut` off by a limit or an interruption."""
        ...


def answer_of(events: Iterable[ChannelEvent]) -> str:
    """Return the text that the user may see: that of the final answer alone."""
    return "".join(
        event.text
        for event in events
        if isinstance(event, ChannelDelta) and event.channel == "user"
    )


class TextStream:
    """A ChatML reply: one message to the user. With tools, calls are taken out of its text."""

    def __init__(self, tokenizer: Tokenizer, tools: ToolSet | None = None) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._calls = CallSplitter(tools) if tools else None
        self._begun = False
        self._ended = False

    def push(self, ids: Sequence[int]) -> list[ChannelEvent]:
        """Add generated ids; returns the text that they complete, never half a character."""
        text = self._detokenizer.push(ids)
        return self._events(self._calls.push(text) if self._calls else [text])

    def finish(self, *, cut: bool = False) -> list[ChannelEvent]:
        """Return what was held back when the generation ended."""
        text = self._detokenizer.finish()
        pieces: list[str | CallOutcome] = [text]
        if self._calls:
            pieces = self._calls.push(text) + self._calls.finish(cut=cut)
        events = self._events(pieces)
        if self._begun and not self._ended:
            self._ended = True
            events.append(MessageEnded(channel="user", end="cut" if cut else "eot"))
        return events

    def _events(self, pieces: Iterable[str | CallOutcome]) -> list[ChannelEvent]:
        events: list[ChannelEvent] = [
            ChannelDelta(channel="user", text=piece) if isinstance(piece, str) else piece
            for piece in pieces
            if piece
        ]
        if events and not self._begun:
            self._begun = True
            events.insert(0, MessageBegan(channel="user"))
        return events
