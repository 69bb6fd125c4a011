"""A generation → the pieces of a chat's answer: texts, calls, its end. No wire shapes here."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sensorium.core.api import Generated, TokenLogprobs, TurnEnded, Usage
from sensorium.core.text.channels import ChannelDelta, ChannelEvent, ChannelStream
from sensorium.core.text.history import ToolCall
from sensorium.core.text.tools import CallMade, CallRefused
from sensorium.gateway.errors import InternalError
from sensorium.gateway.http.chat_logprobs import AnswerTokens, ChosenToken
from sensorium.gateway.http.chat_tools import ToolUse
from sensorium.gateway.http.sequence import RequestSequence
from sensorium.gateway.http.stops import StopStrings

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """More text of the answer; with log probabilities, the `tokens` that begin in it."""

    text: str
    tokens: tuple[ChosenToken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call that is whole and may be made."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the answer ended: OpenAI's `finish_reason`, and its counts."""

    reason: FinishReason
    usage: Usage


Piece: TypeAlias = Shown | Called | Ended


class AnswerReader:
    """Reads the ids of one generation. Only the final answer and calls come out of it."""

    def __init__(
        self,
        stream: ChannelStream,
        *,
        use: ToolUse | None = None,
        stops: Sequence[str] = (),
        tokens: AnswerTokens | None = None,
    ) -> None:
        """`use` is which calls may be made; `stops` end the text.

        `tokens` follows log probabilities, where they were asked for.
        """
        self._stream = stream
        self._cut = StopStrings(stops)
        self._use = use or ToolUse()
        self._tokens = tokens
        self._num_calls = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing more is wanted of the generation."""
        return self._cut.stopped or (self._num_calls > 0 and not self._use.parallel)

    def push(
        self, ids: Sequence[int], logprobs: Sequence[TokenLogprobs] = ()
    ) -> list[Shown | Called]:
        """Return what these ids complete; raises InternalError for a call that can't be made."""
        if self._tokens is None:
            return self._pieces(self._stream.push(ids))
        pieces: list[Shown | Called] = []
        for token_id, chosen in zip(ids, logprobs, strict=True):
            self._tokens.add(token_id, chosen)
            pieces += self._pieces(self._stream.push([token_id]))
        return pieces

    def finish(self, *, cut: bool) -> list[Shown | Called]:
        """Return the rest. A call that is `cut` off by the end is none. Raises as `push` does."""
        if self._tokens is not None:
            self._tokens.end()
        pieces = self._pieces(self._stream.finish(cut=cut))
        return pieces + self._shown(self._cut.finish())

    def reason(self, ended: Literal["stop", "length", "interrupted"]) -> FinishReason:
        """Return why the answer ended, of a generation that `ended` so."""
        if ended == "length" and not self.is_done:
            return "length"
        return "tool_calls" if self._num_calls else "stop"

    def _pieces(self, events: Sequence[ChannelEvent]) -> list[Shown | Called]:
        if self._tokens is not None:
            self._tokens.events(events)
        pieces: list[Shown | Called] = []
        for event in events:
            if self.is_done:
                break
            match event:
                case CallRefused() if not self._use.tools:
                    pass  # to a tool that nobody spoke of: as good as to no known channel
                case ChannelDelta(channel="user", text=text):
                    pieces += self._shown(self._cut.push(text))
                case CallMade(call=call):
                    self._num_calls += 1
                    pieces.append(Called(call=call))
                case CallRefused(reason=reason, message=message) if reason != "cut":
                    # An answer that hides it would be worse: whoever asked can ask again.
                    raise InternalError("invalid_tool_call", f"The model called badly. {message}")
                case _:
                    pass
        return pieces

    def _shown(self, text: str) -> list[Shown | Called]:
        if not text:
            return []
        return [Shown(text=text, tokens=self._tokens.shown(text) if self._tokens else ())]


async def answer(sequence: RequestSequence, reader: AnswerReader) -> AsyncGenerator[Piece, None]:
    """Yield the pieces of an answer, its end last; raises GatewayError."""
    while True:
        match await sequence.next():
            case Generated() as generated if not reader.is_done:
                for piece in reader.push(generated.token_ids, generated.logprobs):
                    yield piece
                if reader.is_done:
                    sequence.interrupt()
            case TurnEnded(reason=reason, usage=usage):
                for piece in reader.finish(cut=reason != "stop"):
                    yield piece
                yield Ended(reason=reader.reason(reason), usage=usage)
                return
            case _:
                pass
