"""The pieces of an answer in the two shapes that OpenAI gives them: whole, or chunk by chunk."""

import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, assert_never

import msgspec

from sensorium.core.api import Usage
from sensorium.core.text.history import ToolCall
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.gateway.errors import GatewayError, InternalError, PeerError
from sensorium.gateway.http.chat_answer import Called, Ended, Piece, Shown
from sensorium.gateway.http.chat_logprobs import ChosenToken, as_openai


class Reply:
    """One answer. With a `tokenizer` it tells log probabilities."""

    def __init__(
        self,
        model: str,
        pieces: AsyncGenerator[Piece, None],
        *,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self._model = model
        self._pieces = pieces
        self._tokenizer = tokenizer
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())

    async def first(self) -> Piece:
        """Return the first piece: until it is there a failure is still an HTTP status."""
        return await anext(self._pieces)

    async def whole(self) -> dict[str, Any]:
        """Return the answer as one `chat.completion`."""
        text = ""
        tokens: list[ChosenToken] = []
        calls: list[dict[str, Any]] = []
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                match piece:
                    case Shown():
                        text += piece.text
                        tokens += piece.tokens
                    case Called(call=call):
                        calls.append(_call(call))
                    case Ended(reason=reason, usage=usage):
                        message: dict[str, Any] = {"role": "assistant", "content": text}
                        message["refusal"] = None
                        if calls:
                            message |= {"content": text or None, "tool_calls": calls}
                        choice = self._choice(reason, tokens) | {"message": message}
                        return self._envelope("chat.completion", [choice], _usage(usage))
                    case _:
                        assert_never(piece)
        raise InternalError("internal_error", "The answer has no end.")

    async def events(self, first: Piece, include_usage: bool) -> AsyncIterator[bytes]:
        """Yield the answer as server-sent events, `[DONE]` last."""
        yield self._chunk({"role": "assistant", "content": ""})
        num_calls = 0
        try:
            async with aclosing(self._pieces) as pieces:
                piece = first
                while not isinstance(piece, Ended):
                    if isinstance(piece, Shown):
                        yield self._chunk({"content": piece.text}, tokens=piece.tokens)
                    else:
                        call = {"index": num_calls, **_call(piece.call)}
                        num_calls += 1
                        yield self._chunk({"tool_calls": [call]})
                    piece = await anext(pieces)
            yield self._chunk({}, finish_reason=piece.reason)
            if include_usage:
                yield _event(self._envelope("chat.completion.chunk", [], _usage(piece.usage)))
        except GatewayError as error:
            # The status line is long gone; this is how OpenAI's clients learn of it.
            kind = "invalid_request_error" if isinstance(error, PeerError) else "server_error"
            body = {"message": error.message, "type": kind, "param": None, "code": error.code}
            yield _event({"error": body})
            return
        yield b"data: [DONE]\n\n"

    def _chunk(
        self,
        delta: dict[str, Any],
        *,
        finish_reason: str | None = None,
        tokens: tuple[ChosenToken, ...] = (),
    ) -> bytes:
        choice = self._choice(finish_reason, tokens) | {"delta": delta}
        if "content" not in delta or "role" in delta:
            choice["logprobs"] = None
        return _event(self._envelope("chat.completion.chunk", [choice]))

    def _choice(
        self, finish_reason: str | None, tokens: list[ChosenToken] | tuple[ChosenToken, ...]
    ) -> dict[str, Any]:
        logprobs = None if self._tokenizer is None else as_openai(self._tokenizer, tokens)
        return {"index": 0, "finish_reason": finish_reason, "logprobs": logprobs}

    def _envelope(
        self, kind: str, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
            **({"usage": usage} if usage else {}),
        }


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": f"call_{secrets.token_hex(12)}",
        "type": "function",
        "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
    }


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return the JSON text of a call's arguments; raises InternalError for a number that is none.

    Half of a surrogate pair, which no UTF-8 has, stands in it as its escape.
    """
    try:
        text = json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
    except ValueError:  # 1e999 is JSON, and infinite once it is read
        message = "The model called badly. A number in its arguments is too large."
        raise InternalError("invalid_tool_call", message) from None
    return text.encode("utf-8", "backslashreplace").decode()


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.num_prompt_tokens,
        "completion_tokens": usage.num_output_tokens,
        "total_tokens": usage.num_prompt_tokens + usage.num_output_tokens,
    }


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
