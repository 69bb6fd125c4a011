"""`POST /v1/chat/completions` with tools, formats, logprobs and effort, over a fake engine."""

import asyncio
import json
from typing import Any

import pytest
from app_rig import fake_engine, http_client, make_app, until
from fakes import FakeEngine
from tiny_text import tiny_muse_prompt, tiny_muse_tokenizer, tiny_prompt

from sensorium.core.api import AppendTokens, Failed, Generate, Interrupt, SamplingParams
from sensorium.core.text.history import Said, ToolCall, ToolResult
from sensorium.core.text.prompt import Prompt
from sensorium.core.text.tools import parse_tools

PATH = "/v1/chat/completions"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
USER = {"role": "user", "content": "Rain?"}
ASK: dict[str, Any] = {"messages": [USER], "tools": [TOOL]}
CALLS = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "\\ud800"}}\n</tool_call>'
)
MADE = [("weather", {"city": "Zürich"}), ("weather", {"city": "\ud800"})]


async def post(
    engine: FakeEngine, ask: dict[str, Any], prompt: Prompt | None = None
) -> tuple[int, Any]:
    """Return the status, and the body, or of a stream all its events."""
    async with http_client(make_app(engine, prompt=prompt)) as client:
        response = await client.post(PATH, json=ask)
    if not ask.get("stream") or response.status_code != 200:
        return response.status_code, response.json()
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    return response.status_code, [json.loads(line) for line in lines if line != "[DONE]"]


def made(calls: list[Any]) -> list[tuple[str, Any]]:
    assert all(call["type"] == "function" and call["id"] for call in calls)
    assert len({call["id"] for call in calls}) == len(calls)
    functions = [call["function"] for call in calls]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def sampling_of(engine: FakeEngine) -> SamplingParams:
    [generate] = [request for request in engine.requests if isinstance(request, Generate)]
    return generate.sampling


async def test_calls_are_in_the_message() -> None:
    _, body = await post(fake_engine(reply=CALLS), ASK)
    [choice] = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert made(choice["message"]["tool_calls"]) == MADE
    assert "Zürich" in choice["message"]["tool_calls"][0]["function"]["arguments"]


async def test_calls_are_streamed_with_their_index() -> None:
    _, events = await post(fake_engine(reply=f"Look: {CALLS}"), {**ASK, "stream": True})
    choices = [event["choices"][0] for event in events]
    assert "".join(c["delta"].get("content", "") for c in choices) == "Look: "
    calls = [call for c in choices for call in c["delta"].get("tool_calls", [])]
    assert [call["index"] for call in calls] == [0, 1]
    assert made(calls) == MADE
    assert choices[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [True, False])
async def test_call_that_the_limit_cuts_is_not_shown(stream: bool) -> None:
    ask = {**ASK, "stream": stream, "max_tokens": len(CALLS) // 2 - 5}
    _, body = await post(fake_engine(reply=CALLS), ask)
    choice = (body[-1] if stream else body)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in json.dumps(body)


async def test_one_call_ends_the_answer_unless_parallel() -> None:
    engine = fake_engine(reply=CALLS)
    _, body = await post(engine, {**ASK, "parallel_tool_calls": False})
    assert made(body["choices"][0]["message"]["tool_calls"]) == MADE[:1]
    assert any(isinstance(request, Interrupt) for request in engine.requests)


async def test_history_and_tools_are_in_the_prompt() -> None:
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    call = {"id": "c", "type": "function", "function": function}
    history = [
        USER,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "Sun."},
    ]
    engine = fake_engine()
    await post(engine, {**ASK, "messages": [{"role": "system", "content": "S"}, *history]})
    [ids] = [r.token_ids for r in engine.requests if isinstance(r, AppendTokens)]
    assert ids == tiny_prompt().conversation(
        [
            Said(role="user", text="Rain?"),
            ToolCall(name="weather", arguments={"city": "Paris"}),
            ToolResult(name="weather", output="Sun."),
        ],
        instructions="S",
        tools=parse_tools([TOOL]),
    )


async def test_constraint_reaches_the_engine() -> None:
    engine = fake_engine(reply=CALLS)
    await post(engine, {**ASK, "tool_choice": "required"})
    required = tiny_prompt().tool_constraint(parse_tools([TOOL]), "required")
    assert sampling_of(engine).constraint == required
    engine = fake_engine(reply="{}")
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": PARAMETERS}}
    await post(engine, {"messages": [USER], "response_format": form})
    assert sampling_of(engine).constraint == tiny_prompt().constraint(json.dumps(PARAMETERS))


@pytest.mark.parametrize(
    ("ask", "param"),
    [
        ({"tools": [TOOL]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_constraint_that_the_engine_refuses_is_the_clients_fault(
    ask: dict[str, Any], param: str, stream: bool
) -> None:
    engine = fake_engine()
    engine.auto = False
    async with http_client(make_app(engine)) as client, asyncio.TaskGroup() as group:
        body = {"messages": [USER], "stream": stream, **ask}
        asking = group.create_task(client.post(PATH, json=body))
        await until(lambda: any(isinstance(r, Generate) for r in engine.requests))
        [sequence_id] = engine.sequences
        refusal = Failed(sequence_id=sequence_id, code="bad_request", message="too many states")
        engine.emit(refusal)
    response = asking.result()
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert "too many states" in error["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_log_probabilities_of_the_shown_tokens(stream: bool) -> None:
    ask = {"messages": [USER], "logprobs": True, "top_logprobs": 2, "stream": stream}
    _, body = await post(fake_engine(reply="Aé no"), {**ask, "stop": [" n"]})
    choices = [event["choices"][0] for event in body] if stream else body["choices"]
    lists = [choice["logprobs"]["content"] for choice in choices if choice["logprobs"]]
    if stream:  # each piece has its own tokens
        texts = [c["delta"]["content"] for c in choices if c["logprobs"]]
        spelled = [bytes(b for entry in content for b in entry["bytes"]) for content in lists]
        assert [piece.decode() for piece in spelled] == texts
    listed = [entry for content in lists for entry in content]
    assert bytes(b for entry in listed for b in entry["bytes"]).decode() == "Aé"
    letter = tiny_prompt().tokenizer.encode("A")[0]
    assert (listed[0]["token"], listed[0]["logprob"]) == ("A", -letter / 1000)
    assert [entry["logprob"] for entry in listed[0]["top_logprobs"]] == [0.0, -0.001]


async def test_log_probabilities_are_only_told_if_asked_for() -> None:
    _, body = await post(fake_engine(reply="A"), {"messages": [USER]})
    assert body["choices"][0]["logprobs"] is None


async def test_effort_is_in_the_prompt() -> None:
    engine = fake_engine(encode=tiny_muse_tokenizer().encode_markup, reply=" to=user<|message|>.")
    ask = {"messages": [USER], "reasoning_effort": "low"}
    await post(engine, ask, prompt=tiny_muse_prompt())
    [ids] = [r.token_ids for r in engine.requests if isinstance(r, AppendTokens)]
    assert "Reasoning strength: low." in tiny_muse_tokenizer().decode(ids)


@pytest.mark.parametrize("stream", [True, False])
async def test_muse_call_that_cannot_be_made_is_told(stream: bool) -> None:
    reply = " to=user<|message|>Wait<|eom|><|start|>assistant to=weather<|message|>rain?"
    engine = fake_engine(encode=tiny_muse_tokenizer().encode_markup, reply=reply)
    status, body = await post(engine, {**ASK, "stream": stream}, prompt=tiny_muse_prompt())
    error = (body[-1] if stream else body)["error"]
    assert (status, error["code"]) == (200 if stream else 500, "invalid_tool_call")
    assert error["type"] == "server_error"
    assert "'weather'" in error["message"]
    assert engine.sequences == {}


async def test_number_that_json_cannot_say_is_told() -> None:
    parameters = {"properties": {"x": {"type": "number"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    reply = '<tool_call>\n{"name": "f", "arguments": {"x": 1e999}}\n</tool_call>'
    status, body = await post(fake_engine(reply=reply), {**ASK, "tools": [tool]})
    assert (status, body["error"]["code"]) == (500, "invalid_tool_call")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom"}]}, "tools"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [
                {"id": "a", "function": {"name": "no spaces"}}]}]},
            "messages",
        ),
    ],
)  # fmt: skip
async def test_refusals_are_400s_that_name_the_field(fields: dict[str, Any], param: str) -> None:
    engine = fake_engine()
    status, body = await post(engine, {**ASK, **fields})
    assert (status, body["error"]["param"]) == (400, param)
    assert engine.requests == []
