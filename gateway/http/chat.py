"""`POST /v1/chat/completions`: messages in; text or calls out, whole or as server-sent events.

What is asked for is read by chat_request, _messages, _tools and _schemas; the answer is written by
chat_answer (from ids), _logprobs and _reply (OpenAI's shapes).
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from sensorium.gateway.http.body import arriving, bounded, while_connected
from sensorium.gateway.http.chat_answer import AnswerReader, answer
from sensorium.gateway.http.chat_logprobs import AnswerTokens
from sensorium.gateway.http.chat_messages import entries_of
from sensorium.gateway.http.chat_prompt import prompt_ids
from sensorium.gateway.http.chat_reply import Reply
from sensorium.gateway.http.chat_request import ChatRequest, parse_chat
from sensorium.gateway.http.chat_schemas import schema_of
from sensorium.gateway.http.chat_tools import constrained
from sensorium.gateway.http.models import check_model
from sensorium.gateway.http.sequence import open_sequence
from sensorium.gateway.services import Services

MAX_BODY_BYTES = 4 * 2**20


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

    async def _begin(self, chat: ChatRequest, stack: AsyncExitStack) -> Reply:
        """Start the answer on a sequence that ends with `stack`."""
        services = self._services
        prompt, session = services.prompt, services.settings.session
        info = check_model(services, chat.model)
        use = chat.tool_use()
        held = constrained(prompt, use, schema_of(chat.response_format))
        ids = prompt_ids(
            prompt,
            entries_of(chat.messages),
            # "" is a choice of the request's; without one it's the server's, then the model's.
            default_instructions=session.default_instructions or None,
            tools=use.tools,
            effort=chat.effort(prompt.efforts),
            max_positions=info.max_positions,
        )
        sampling = chat.sampling(
            default_tokens=session.max_output_tokens,
            room=info.max_positions - len(ids),
            stop_token_ids=prompt.stop_token_ids,
            constraint=held.constraint,
        )
        reader = AnswerReader(
            prompt.stream(use.tools),
            use=use,
            stops=chat.stops(),
            tokens=AnswerTokens(prompt.tokenizer) if chat.logprobs else None,
        )
        sequence = await stack.enter_async_context(open_sequence(services))
        sequence.append_tokens(ids)
        sequence.generate(sampling, constrained_by=held.param)
        pieces = answer(sequence, reader)
        return Reply(info.name, pieces, tokenizer=prompt.tokenizer if chat.logprobs else None)


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


def _json(body: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
