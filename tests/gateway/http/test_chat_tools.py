"""`tools`, `tool_choice` and what makes calls valid."""

from typing import Any

import pytest
from tiny_text import tiny_muse_prompt, tiny_prompt

from sensorium.core.text.tools import parse_tools
from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.chat_schemas import MAX_SCHEMA_BYTES
from sensorium.gateway.http.chat_tools import Constrained, ToolUse, constrained, tool_use


def tool(name: str, **fields: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **fields}}


def choosing(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


TOOLS = [
    tool("f"),
    tool("none"),
    {"type": "namespace", "name": "ns", "description": "d", "tools": [tool("g")]},
]


def use(choice: object, *, parallel: bool = True) -> ToolUse:
    return tool_use(TOOLS, choice, parallel=parallel)


def names(use: ToolUse) -> tuple[list[str], list[str]]:
    return [tool.name for tool in use.tools], [tool.name for tool in use.callable_tools]


ALL = ["f", "none", "ns.g"]


@pytest.mark.parametrize("parallel", [True, False])
def test_choices(parallel: bool) -> None:
    for choice in (None, "auto"):
        may = use(choice, parallel=parallel)
        assert (names(may), may.must_call, may.parallel) == ((ALL, ALL), False, parallel)
    must = use("required", parallel=parallel)
    assert (names(must), must.must_call, must.parallel) == ((ALL, ALL), True, parallel)


@pytest.mark.parametrize("name", ["ns.g", "none"])
def test_named_tool_is_the_only_one_that_may_be_called_and_once(name: str) -> None:
    only = use(choosing(name))
    assert (names(only), only.must_call, only.parallel) == ((ALL, [name]), True, False)


def test_none_tells_the_model_of_no_tools() -> None:
    assert names(use("none")) == ([], [])
    assert constrained(tiny_prompt(), use("none"), None) == Constrained()


@pytest.mark.parametrize(
    ("tools", "choice", "param", "told"),
    [
        ([{"type": "custom"}], None, "tools", "custom"),
        ([{"type": "function"}], None, "tools", "name"),
        (["f"], None, "tools", "object"),
        ([tool("f"), tool("f")], None, "tools", "twice"),
        ([tool("no spaces")], None, "tools", "no spaces"),
        ([tool(f"f{i}") for i in range(129)], None, "tools", "128"),
        ([tool("f", description="x" * MAX_SCHEMA_BYTES)], None, "tools", str(MAX_SCHEMA_BYTES)),
        ([tool("f")], "sometimes", "tool_choice", "'required'"),
        ([tool("f")], {"type": "allowed_tools"}, "tool_choice", "'required'"),
        ([tool("f")], {"type": "function", "name": "f"}, "tool_choice", "'required'"),
        ([tool("f")], choosing("g"), "tool_choice", "declared are f"),
        ([], "required", "tool_choice", "declare some"),
        ([], choosing("f"), "tool_choice", "declare some"),
    ],
)
def test_refusals_name_the_field_and_what_is_right(
    tools: list[Any], choice: object, param: str, told: str
) -> None:
    with pytest.raises(PeerError) as refused:
        tool_use(tools, choice, parallel=True)
    assert refused.value.param == param
    assert told in refused.value.message


def test_chatml_calls_are_held_to_their_schemas() -> None:
    prompt = tiny_prompt()
    may, must = (constrained(prompt, use(c), None) for c in ("auto", "required"))
    assert may.constraint == prompt.tool_constraint(parse_tools(TOOLS), "auto")
    assert must.constraint == prompt.tool_constraint(parse_tools(TOOLS), "required")
    assert (may.param, must.param) == ("tools", "tools")
    only = constrained(prompt, use(choosing("f")), None).constraint
    assert only == prompt.tool_constraint(parse_tools(TOOLS[:1]), "required", parallel=False)


def test_format_is_held_to_where_no_call_has_to_be() -> None:
    prompt, schema = tiny_prompt(), '{"type": "object"}'
    free = constrained(prompt, use("none"), schema)
    assert (free.constraint, free.param) == (prompt.constraint(schema), "response_format")
    must = constrained(prompt, use("required"), schema)
    assert must.constraint == prompt.tool_constraint(parse_tools(TOOLS), "required")
    with pytest.raises(PeerError) as refused:
        constrained(prompt, use("auto"), schema)
    assert refused.value.param == "response_format"


def test_muse_can_have_both_and_be_forced_to_neither() -> None:
    prompt, schema = tiny_muse_prompt(), '{"type": "object"}'
    assert constrained(prompt, use("auto"), None) == Constrained()
    assert constrained(prompt, use("auto"), schema).constraint == prompt.constraint(schema)
    for choice in ("required", choosing("f")):
        with pytest.raises(PeerError) as refused:
            constrained(prompt, use(choice), None)
        assert refused.value.param == "tool_choice"
