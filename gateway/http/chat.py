"""`POST /v1/chat/completions`: text in, text out, whole or as server-sent events."""

import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from sensorium.core.api import Generated, ModelInfo, TurnEnded, Usage
from sensorium.core.errors import BadCheckpoint
from sensorium.core.text.channels import answer_of
from sensorium.core.text.history import Said
from sensorium.gateway.errors import GatewayError, InternalError, PeerError
from sensorium.gateway.http.body import arriving, bounded, while_connected
from sensorium.gateway.http.chat_request import ChatRequest, parse_chat
from sensorium.gateway.http.models import check_model
from sensorium.gateway.http.sequence import RequestSequence, open_sequence
from sensorium.gateway.http.stops import StopStrings
from sensorium.gateway.services import Services

MAX_BODY_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """How an answer ended: OpenAI's `finish_reason`, and its counts."""

    reason: str
    usage: Usage


class ChatEndpoint:
    """Answers chats, each on a sequence of its own that ends with the request."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def complete(self, request: Request) -> Response:
        """Answer one request; raises GatewayError."""
        async with arriving():
            body = await bounded(request, MAX_BODY_BYTES).body()
        chat = parse_chat(body)
        async with AsyncExitStack() as stack:
            stack.enter_context(self._services.admission.request_place("chat"))
            reply = await self._begin(chat, stack)
            if chat.stream:
                include_usage = bool(chat.stream_options and chat.stream_options.include_usage)
                first = await while_connected(request.receive, reply.first())
                response: Response = _EventStream(
                    reply.events(first, include_usage), stack.pop_all()
                )
            else:
                response = _json(await while_connected(request.receive, reply.whole()))
        return response

    async def _begin(self, chat: ChatRequest, stack: AsyncExitStack) -> "_Reply":
        """Start the answer on a sequence that ends with `stack`."""
        services = self._services
        info = check_model(services, chat.model)
        prompt_ids = self._prompt_ids(chat, info)
        sampling = chat.sampling(
            default_tokens=services.settings.session.max_output_tokens,
            room=info.max_positions - len(prompt_ids),
            stop_token_ids=services.prompt.stop_token_ids,
        )
        sequence = await stack.enter_async_context(open_sequence(services))
        sequence.append_tokens(prompt_ids)
        sequence.generate(sampling)
        return _Reply(info.name, _answer(services, sequence, chat.stops()))

    def _prompt_ids(self, chat: ChatRequest, info: ModelInfo) -> tuple[int, ...]:
        prompt = self._services.prompt
        turns = chat.turns()
        # "" is a choice of the request's; without a choice it's the server's, then the model's.
        instructions = self._services.settings.session.default_instructions or None
        if turns[0][0] == "system":
            instructions = turns.pop(0)[1]
        num_chars = sum(len(text) for _, text in turns) + len(instructions or "")
        ids: tuple[int, ...] = ()
        if num_chars <= info.max_positions * _MAX_CHARS_PER_POSITION:
            said = [Said(role=role, text=text) for role, text in turns]
            try:
                ids = prompt.conversation(said, instructions=instructions)
            except BadCheckpoint as error:  # templates refuse roles in an order they don't know
                raise PeerError(
                    "invalid_value",
                    f"The model can't be given these messages: {error}.",
                    param="messages",
                ) from error
            if len(ids) < info.max_positions:
                return ids
        count = f"{len(ids)} tokens" if ids else f"{num_chars} characters"
        raise PeerError(
            "context_length_exceeded",
            f"The messages have {count}; the model's context is {info.max_positions} tokens "
            "with the answer.",
            param="messages",
        )


_MAX_CHARS_PER_POSITION = 64
"""Far above what any tokenizer packs into one id: more needn't be tokenised to be refused."""


async def _answer(
    services: Services, sequence: RequestSequence, stops: tuple[str, ...]
) -> AsyncGenerator[str | _End, None]:
    """Yield the answer's text in pieces, then its end; raises GatewayError."""
    stream = services.prompt.stream()
    cut = StopStrings(stops)
    while True:
        match await sequence.next():
            case Generated(token_ids=token_ids) if not cut.stopped:
                if shown := cut.push(answer_of(stream.push(token_ids))):
                    yield shown
                if cut.stopped:
                    sequence.interrupt()
            case TurnEnded(reason=reason, usage=usage):
                text = answer_of(stream.finish(cut=reason != "stop"))
                if shown := cut.push(text) + cut.finish():
                    yield shown
                finish_reason = "length" if reason == "length" and not cut.stopped else "stop"
                yield _End(reason=finish_reason, usage=usage)
                return
            case _:
                pass


class _Reply:
    """One answer in the two shapes that OpenAI gives it."""

    def __init__(self, model: str, pieces: AsyncGenerator[str | _End, None]) -> None:
        self._model = model
        self._pieces = pieces
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self._created = int(time.time())

    async def first(self) -> str | _End:
        """Return the first piece: until it is there a failure is still an HTTP status."""
        return await anext(self._pieces)

    async def whole(self) -> dict[str, Any]:
        """Return the answer as one `chat.completion`."""
        text = ""
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                if isinstance(piece, _End):
                    message = {"role": "assistant", "content": text, "refusal": None}
                    choice = {
                        "index": 0,
                        "message": message,
                        "finish_reason": piece.reason,
                        "logprobs": None,
                    }
                    return self._envelope("chat.completion", [choice], _usage(piece.usage))
                text += piece
        raise InternalError("internal_error", "The answer has no end.")

    async def events(self, first: str | _End, include_usage: bool) -> AsyncIterator[bytes]:
        """Yield the answer as server-sent events, `[DONE]` last."""
        yield self._chunk({"role": "assistant", "content": ""})
        try:
            async with aclosing(self._pieces) as pieces:
                piece: str | _End = first
                while isinstance(piece, str):
                    yield self._chunk({"content": piece})
                    piece = await anext(pieces)
            yield self._chunk({}, finish_reason=piece.reason)
            if include_usage:
                yield _event(self._envelope("chat.completion.chunk", [], _usage(piece.usage)))
        except GatewayError as error:
            # The status line is long gone; this is how OpenAI's clients learn of it.
            kind = "server_error" if error.retryable else "invalid_request_error"
            body = {"message": error.message, "type": kind, "param": None, "code": error.code}
            yield _event({"error": body})
            return
        yield b"data: [DONE]\n\n"

    def _chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return _event(self._envelope("chat.completion.chunk", [choice]))

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


class _EventStream(StreamingResponse):
    """Server-sent events whose sources are released when the stream ends or the client leaves."""

    def __init__(self, events: AsyncIterator[bytes], sources: AsyncExitStack) -> None:
        super().__init__(
            events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"}
        )
        self._sources = sources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._sources:
            try:
                await while_connected(receive, self.stream_response(send))
            except ClientDisconnect:
                return


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.num_prompt_tokens,
        "completion_tokens": usage.num_output_tokens,
        "total_tokens": usage.num_prompt_tokens + usage.num_output_tokens,
    }


def _json(body: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
