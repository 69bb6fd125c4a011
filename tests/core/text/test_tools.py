"""Declarations of tools: read in every form, refused with a reason, found by what models write."""

from typing import Any

import pytest

from sensorium.core.text.history import ToolCall
from sensorium.core.text.tools import (
    MAX_TOOLS,
    BadTools,
    CallMade,
    CallRefused,
    Tool,
    ToolSet,
    parse_tools,
)

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def tool(name: str, **parameters: Any) -> Tool:
    """Return a tool of a name."""
    return Tool(name=name, description="", parameters={"type": "object", **parameters})


def test_every_form_of_declaration_is_read() -> None:
    flat = {"type": "function", "name": "flat", "description": "F", "parameters": SCHEMA}
    nested = {"type": "function", "function": {"name": "ns.nested", "parameters": None}}
    space = {
        "type": "namespace",
        "name": "space",
        "description": "S",
        "tools": [{"type": "function", "name": "inner"}],
        "defer_loading": True,
    }
    tools = parse_tools([flat, nested, space])
    assert list(tools.tools) == ["flat", "ns.nested", "space.inner"]
    assert tools.namespaces == {"flat": "", "ns": "", "space": "S"}
    assert tools.tools["flat"] == Tool(name="flat", description="F", parameters=SCHEMA)
    assert tools.tools["space.inner"].parameters == {"type": "object"} | {"properties": {}}


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"type": "function", "name": "a b"}, "'a b' is no tool name"),
        ({"type": "function", "name": "a<|message|>"}, "no tool name"),
        ({"type": "function", "name": "x" * 65}, "at most 64"),
        ({"type": "function"}, "no tool name"),
        ({"type": "function", "name": "user"}, "'user' can't name a tool"),
        ({"type": "function", "name": "self.x"}, "reserved"),
        ({"type": "web_search"}, "'web_search'; known are 'function' and 'namespace'"),
        ({"type": "function", "function": []}, "must be an object"),
        ({"type": "function", "name": "a", "parameters": {"type": "array"}}, "type object"),
        (
            {"type": "function", "name": "a", "parameters": {"required": "x"}},
            "'parameters.required'",
        ),
        ({"type": "function", "name": "a", "parameters": {"required": [1]}}, "must name"),
        ({"type": "function", "name": "a", "parameters": {"properties": []}}, "properties"),
        ({"type": "function", "name": "a", "description": 3}, "'description' must be a text"),
        ({"type": "namespace", "name": "n", "tools": "x"}, "'tools' must be a list"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "namespace"}]}, "'namespace'"),
        ("x", "is an object"),
    ],
)
def test_bad_declaration_says_what_is_wrong(declared: Any, problem: str) -> None:
    with pytest.raises(BadTools, match=problem):
        parse_tools([declared])


def test_number_of_tools_is_bounded_and_names_differ() -> None:
    with pytest.raises(BadTools, match=f"at most {MAX_TOOLS}"):
        ToolSet([tool(f"t{i}") for i in range(MAX_TOOLS + 1)])
    with pytest.raises(BadTools, match="'a' is declared twice"):
        ToolSet([tool("a"), tool("b"), tool("a")])


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("clock", "clock"),
        ("clock.clock", "clock"),
        ("ns.get", "ns.get"),
        ("ns.get.ns.get", "ns.get"),
        ("ns.ns.get", "ns.get"),
        ("get", None),
        ("x.clock", None),
        ("clock.get", None),
        ("twice.twice", "twice.twice"),
        ("twice", None),
        ("", None),
        ("Clock", None),
    ],
)
def test_doubled_name_is_collapsed_and_nothing_else_guessed(written: str, found: str) -> None:
    tools = ToolSet([tool("clock"), tool("ns.get"), tool("twice.twice")])
    match = tools.find(written)
    assert (match and match.name) == found


def test_calls_are_checked() -> None:
    tools = ToolSet(
        [
            tool(
                "f", **{k: v for k, v in SCHEMA.items() if k != "type"}, additionalProperties=False
            ),
            tool("g"),
        ]
    )
    assert tools.check("f.f", {"a": 1}) == CallMade(call=ToolCall(name="f", arguments={"a": 1}))
    assert tools.check("g", {"any": 1}) == CallMade(call=ToolCall(name="g", arguments={"any": 1}))
    for name, arguments, reason, words in (
        ("f", {}, "bad_arguments", "'f' lacks a"),
        ("f", {"a": 1, "b": 2}, "bad_arguments", "no parameter b"),
        ("h", {}, "unknown_tool", "no tool 'h'; registered: f, g"),
    ):
        refused = tools.check(name, arguments)
        assert isinstance(refused, CallRefused)
        assert refused.reason == reason
        assert words in refused.message


def test_named_tool_must_be_there() -> None:
    tools = ToolSet([tool("f")])
    assert tools.named("f").name == "f"
    with pytest.raises(BadTools, match="'g'; declared are f"):
        tools.named("g")
