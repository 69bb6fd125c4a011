"""`POST /v1/chat/completions` over a fake engine."""

import asyncio
import json
from typing import Any

import pytest
from app_rig import fake_engine, http_client, make_app, services_of, until
from fakes import FakeEngine
from starlette.types import Message
from tiny_text import tiny_prompt

from sensorium.core.api import AppendTokens, Generate, Interrupt
from sensorium.gateway.settings import GatewaySettings, SessionSettings, Settings

PATH = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def prompt_of(engine: FakeEngine) -> str:
    [ids] = [r.token_ids for r in engine.requests if isinstance(r, AppendTokens)]
    names = {256: "<end>", 257: "<open>", 258: "<close>"}
    return "".join(names.get(i) or chr(i) for i in _bytes(ids))


def _bytes(ids: tuple[int, ...]) -> list[int]:
    tokenizer = tiny_prompt().tokenizer
    return [i if i >= 256 else tokenizer.token_bytes(i)[0] for i in ids]


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


async def test_whole_answer() -> None:
    engine = fake_engine(reply="Paris.")
    async with http_client(make_app(engine)) as client:
        response = await client.post(PATH, json=ASK)
    body = response.json()
    assert response.status_code == 200
    assert (body["object"], body["model"]) == ("chat.completion", "fake")
    [choice] = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Paris.", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 6
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 6
    default = SessionSettings().default_instructions
    assert prompt_of(engine) == (
        f"<open>system\n{default}<close>\n<open>user\nhi<close>\n<open>assistant\n"
    )
    assert engine.sequences == {}


async def test_streamed_answer() -> None:
    engine = fake_engine(reply="Paris.")
    async with http_client(make_app(engine)) as client:
        response = await client.post(
            PATH, json={**ASK, "stream": True, "stream_options": {"include_usage": True}}
        )
    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, usage = events(response.text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "Paris."
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 6)
    assert len({chunk["id"] for chunk in [*chunks, usage]}) == 1
    assert engine.sequences == {}


@pytest.mark.parametrize("stream", [True, False])
async def test_stop_string_ends_the_answer_before_it(stream: bool) -> None:
    engine = fake_engine(reply="one two three")
    async with http_client(make_app(engine)) as client:
        response = await client.post(PATH, json={**ASK, "stop": [" three"], "stream": stream})
    if stream:
        choices = [event["choices"][0] for event in events(response.text)]
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        reason = choices[-1]["finish_reason"]
    else:
        [choice] = response.json()["choices"]
        text, reason = choice["message"]["content"], choice["finish_reason"]
    assert (text, reason) == ("one two", "stop")
    assert any(isinstance(request, Interrupt) for request in engine.requests)


async def test_limit_of_tokens_is_a_finish_reason() -> None:
    async with http_client(make_app(fake_engine(reply="one two three"))) as client:
        response = await client.post(PATH, json={**ASK, "max_tokens": 3})
    [choice] = response.json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one", "length")


async def test_sampling_reaches_the_engine() -> None:
    engine = fake_engine()
    async with http_client(make_app(engine)) as client:
        await client.post(PATH, json={**ASK, "temperature": 0.5, "seed": 7, "model": "default"})
    [generate] = [request for request in engine.requests if isinstance(request, Generate)]
    assert (generate.sampling.temperature, generate.sampling.seed) == (0.5, 7)
    assert generate.sampling.max_tokens == 512
    assert generate.sampling.stop_token_ids == tiny_prompt().stop_token_ids


@pytest.mark.parametrize("length", [3000, 500_000])
async def test_too_long_a_context_is_refused(length: int) -> None:
    engine = fake_engine()
    async with http_client(make_app(engine)) as client:
        ask = {"messages": [{"role": "user", "content": "x" * length}]}
        response = await client.post(PATH, json=ask)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "2048" in error["message"]
    assert engine.requests == []


async def test_unknown_model_names_the_known_ones() -> None:
    async with http_client(make_app()) as client:
        response = await client.post(PATH, json={**ASK, "model": "gpt-5"})
    assert response.status_code == 404
    assert "default and fake" in response.json()["error"]["message"]


async def test_body_is_bounded() -> None:
    async with http_client(make_app()) as client:
        declared = await client.post(PATH, content=b"x" * (4 * 2**20 + 1))
        chunked = await client.post(PATH, content=_endless())
    for response in (declared, chunked):
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"


async def _endless() -> Any:
    while True:
        yield bytes(2**20)


async def test_busy_engine_is_a_503_with_retry_after() -> None:
    engine = fake_engine()
    engine.busy = True
    async with http_client(make_app(engine)) as client:
        response = await client.post(PATH, json={**ASK, "stream": True})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_busy")
    assert response.headers["retry-after"]


async def test_engine_lost_mid_stream_is_an_error_event() -> None:
    engine = fake_engine()
    engine.held = True
    async with http_client(make_app(engine)) as client, asyncio.TaskGroup() as group:
        asking = group.create_task(client.post(PATH, json={**ASK, "stream": True}))
        await until(lambda: any(s.generation for s in engine.sequences.values()))
        await asyncio.sleep(0)
        engine.lose()
    assert '"code":"engine_lost"' in asking.result().text
    assert "[DONE]" not in asking.result().text


async def test_requests_beyond_the_limit_wait_for_another_time() -> None:
    engine = fake_engine()
    engine.held = True
    app = make_app(engine, settings=Settings(gateway=GatewaySettings(max_requests=1)))
    async with http_client(app) as client, asyncio.TaskGroup() as group:
        first = group.create_task(client.post(PATH, json=ASK))
        await until(lambda: bool(engine.sequences))
        second = await client.post(PATH, json=ASK)
        engine.release()
    assert (first.result().status_code, second.status_code) == (200, 503)


@pytest.mark.parametrize("stream", [True, False])
async def test_client_that_leaves_closes_its_sequence(stream: bool) -> None:
    engine = fake_engine()
    engine.held = True
    leaving = asyncio.Event()
    body = json.dumps({**ASK, "stream": stream}).encode()
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await leaving.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        return

    scope = {
        "type": "http", "method": "POST", "path": PATH, "headers": [(b"host", b"127.0.0.1")],
        "query_string": b"", "client": ("127.0.0.1", 1), "asgi": {"spec_version": "2.4"},
    }  # fmt: skip
    app = make_app(engine)
    async with asyncio.TaskGroup() as group:
        group.create_task(app(scope, receive, send))
        await until(lambda: any(s.generation for s in engine.sequences.values()))
        leaving.set()
    await until(lambda: not engine.sequences)
    assert not services_of(app).live


async def test_stopping_server_ends_streams_and_takes_no_more() -> None:
    engine = fake_engine()
    engine.held = True
    app = make_app(engine)
    async with http_client(app) as client, asyncio.TaskGroup() as group:
        asking = group.create_task(client.post(PATH, json={**ASK, "stream": True}))
        await until(lambda: any(s.generation for s in engine.sequences.values()))
        await asyncio.sleep(0)
        await services_of(app).drain(5.0)
        late = await client.post(PATH, json=ASK)
    assert "server_shutting_down" in asking.result().text
    assert (late.status_code, late.json()["error"]["code"]) == (503, "server_shutting_down")
