"""Log probabilities of the tokens that the shown text is made of, in OpenAI's shape.

A generation has more tokens than its answer: headers, reasoning, calls, what a stop string cuts
off. And texts come late, once they are decided. So tokens are followed by their characters.
"""

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sensorium.core.api import TokenLogprobs
from sensorium.core.text.channels import ChannelDelta, ChannelEvent, MessageBegan
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.core.text.tools import CallMade, CallRefused

LEAST = -9999.0
"""OpenAI's word for "impossible": JSON has no infinity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenToken:
    """A token and what the model thought of it."""

    token_id: int
    logprobs: TokenLogprobs


class AnswerTokens:
    """Follows one generation: `add` a token, tell the `events` that it caused, ask what is `shown`.

    A token belongs to the text that its first whole character belongs to; one without any (a part
    of a character) to that of the character which it helps to make.

    >>> tokens.add("a<0xC3>"), tokens.add("<0xA9>!"), and "aé" is shown: both tokens, "!" later none
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting: list[ChosenToken] = []  # without a character so far
        self._text = ""  # what no event has told the use of
        self._begun: list[list[ChosenToken]] = []  # per character of _text: the tokens it begins
        self._last = 0  # where in _text the newest token begins
        self._answer: list[list[ChosenToken]] = []  # the same of the answer that isn't shown yet

    def add(self, token_id: int, logprobs: TokenLogprobs) -> None:
        """Take the next token of the generation."""
        raw = self._tokenizer.token_bytes(token_id)
        self._last = len(self._text)
        if raw:
            self._waiting.append(ChosenToken(token_id=token_id, logprobs=logprobs))
        self._take(self._utf8.decode(raw, final=not raw))  # no character goes over a control token

    def events(self, events: Iterable[ChannelEvent]) -> None:
        """Tell what the generation's reader made of it."""
        for event in events:
            match event:
                case ChannelDelta(channel=channel, text=text):
                    begin = max(self._text.find(text), 0)
                    end = begin + len(text)
                    if channel == "user":
                        self._answer += self._begun[begin:end]
                    self._drop(end)
                case MessageBegan(header=header) if header:
                    self._drop(len(self._text))
                case CallMade() | CallRefused():
                    self._drop(self._last)
                case _:
                    pass

    def end(self) -> None:
        """The generation is over: half a character is shown as one that is none."""
        self._take(self._utf8.decode(b"", final=True))

    def shown(self, text: str) -> tuple[ChosenToken, ...]:
        """Return the tokens of the answer's next characters, which are `text`."""
        begun, self._answer = self._answer[: len(text)], self._answer[len(text) :]
        return tuple(token for tokens in begun for token in tokens)

    def _take(self, text: str) -> None:
        if text:
            self._text += text
            self._begun += [self._waiting, *([] for _ in text[1:])]
            self._waiting = []

    def _drop(self, count: int) -> None:
        self._text, self._begun = self._text[count:], self._begun[count:]
        self._last = max(self._last - count, 0)


def as_openai(tokenizer: Tokenizer, tokens: Iterable[ChosenToken]) -> dict[str, Any]:
    """Return the `logprobs` of a choice."""
    content = [
        _named(tokenizer, token.token_id, token.logprobs.logprob)
        | {"top_logprobs": [_named(tokenizer, *likely) for likely in token.logprobs.top]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _named(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    """Name a token; a control token has a name, and no bytes in any text."""
    raw = tokenizer.token_bytes(token_id)
    return {
        "token": tokenizer.spell([token_id]),
        "logprob": max(logprob, LEAST),
        "bytes": list(raw) if raw else None,
    }
