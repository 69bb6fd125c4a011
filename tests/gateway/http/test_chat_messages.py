"""Messages of a chat request: roles, calls and their results, and what is refused."""

import json
from typing import Any

import msgspec
import pytest

from sensorium.core.text.history import Entry, Said, ToolCall, ToolResult
from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.chat_messages import Message, entries_of


def entries(*messages: dict[str, Any]) -> list[Entry]:
    return entries_of(msgspec.convert(messages, list[Message]))


def call(call_id: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def calling(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def test_content_parts_and_roles() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert entries(
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": parts, "name": "ann"},
        {"role": "assistant", "content": None},
    ) == [
        Said(role="system", text="be brief"),
        Said(role="user", text="ab"),
        Said(role="assistant", text=""),
    ]


def test_calls_and_results_are_entries() -> None:
    weather = call("c1", "weather", '{"city": "Paris"}')
    assert entries(
        calling(weather, content="Let me look."), result("c1", "rain"), calling(call("c2", "f", ""))
    ) == [
        Said(role="assistant", text="Let me look."),
        ToolCall(name="weather", arguments={"city": "Paris"}),
        ToolResult(name="weather", output="rain"),
        ToolCall(name="f", arguments={}),
    ]


def test_results_stand_in_the_order_of_their_calls() -> None:
    found = entries(
        calling(call("a", "f"), call("b", "f"), call("c", "g")),
        result("c", "3"),
        result("b", "2"),
        result("a", "1"),
    )
    assert found[3:] == [
        ToolResult(name="f", output="1"),
        ToolResult(name="f", output="2"),
        ToolResult(name="g", output="3"),
    ]


def test_id_used_again_means_the_newest_call() -> None:
    found = entries(calling(call("a", "old")), calling(call("a", "new")), result("a", "x"))
    assert found[-1] == ToolResult(name="new", output="x")


DEEP = json.dumps({"a": [[1]]}).replace("[[1]]", "[" * 500 + "]" * 500)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "robot", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content"),
        ([{"role": "user", "tool_calls": [call("a")]}], "messages[0].tool_calls"),
        ([calling(call("a"), call("a"))], "messages[0].tool_calls"),
        ([calling(call("a") | {"type": "custom"})], "messages[0].tool_calls[0].type"),
        ([calling(call("a"), call("b", "f", "{"))], "messages[0].tool_calls[1].function.arguments"),
        ([calling(call("a", "f", "[1]"))], "messages[0].tool_calls[0].function.arguments"),
        ([calling(call("a", "f", DEEP))], "messages[0].tool_calls[0].function.arguments"),
        ([{"role": "tool", "content": "x"}], "messages[0].tool_call_id"),
        ([calling(call("a")), result("b", "x")], "messages[1].tool_call_id"),
        ([result("a", "x"), calling(call("a"))], "messages[0].tool_call_id"),
        ([calling(call("a")), result("a", "x"), result("a", "y")], "messages[2].tool_call_id"),
    ],
)
def test_refusals_name_the_field(messages: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(PeerError) as refused:
        entries(*messages)
    assert refused.value.param == param
