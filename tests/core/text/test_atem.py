"""ATEM: what is written comes back, values are typed by schema, nothing half-right is called."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.core.text.atem import MAX_BODY_CHARS, CallReader, write_call
from sensorium.core.text.history import ToolCall
from sensorium.core.text.tools import CallMade, CallOutcome, CallRefused, Tool, ToolSet

ANY = Tool(name="ns.any", description="", parameters={"type": "object"})


def read(
    body: str, tool: Tool = ANY, *, split: int = 10**9, cut: bool = False
) -> list[CallOutcome]:
    """Return what becomes of a body that comes in pieces."""
    reader = CallReader(ToolSet([tool]), tool.name)
    for start in range(0, len(body), split):
        reader.push(body[start : start + split])
    return reader.finish(cut=cut)


def arguments(schema: Any, written: str) -> object:
    """Return the value of a parameter `p` of a schema."""
    tool = Tool(name="t", description="", parameters={"properties": {"p": schema}, **DEFINITIONS})
    body = write_call(ToolCall(name="t", arguments={"p": written}))
    [outcome] = read(body, tool)
    assert isinstance(outcome, CallMade)
    return outcome.call.arguments["p"]


DEFINITIONS = {"$defs": {"Zone": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
        ({"type": "string"}, " two\nlines ", " two\nlines "),
        ({"type": ["string", "null"]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "12", "12"),
        ({"$ref": "#/$defs/Zone"}, "12", "12"),
        ({"$ref": "#/$defs/Nowhere"}, "12", 12),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"const": "true"}, "true", "true"),
        ({"type": "integer"}, "12", 12),
        ({"type": "boolean"}, "true", True),
        ({"type": "array"}, '["a", {"b": null}]', ["a", {"b": None}]),
        ({"type": "integer"}, "twelve", "twelve"),
        ({"type": "number"}, "NaN", "NaN"),
        ({}, "[" * 5000, "[" * 5000),
        ({}, "free text", "free text"),
        ({}, "3", 3),
        (True, "3", 3),
        ({"type": 5, "enum": 5, "anyOf": 5}, "3", 3),  # no schema, but nobody has said so
        ({"type": [{}], "anyOf": [5]}, "3", 3),
    ],
)
def test_value_is_typed_by_its_schema(schema: Any, written: str, value: object) -> None:
    assert arguments(schema, written) == value


TEXTS = st.text(st.characters(codec="utf-8"), max_size=30).filter(lambda text: "<" not in text)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)


@given(values=st.dictionaries(KEYS, VALUES, max_size=4), split=st.integers(1, 40))
def test_what_is_written_comes_back(values: dict[str, Any], split: int) -> None:
    schema = {key: {"type": "string"} for key, value in values.items() if isinstance(value, str)}
    tool = Tool(name="ns.any", description="", parameters={"properties": schema})
    call = ToolCall(name="ns.any", arguments=values)
    assert read(write_call(call), tool, split=split) == [CallMade(call=call)]


BODY = write_call(ToolCall(name="ns.any", arguments={"a": "x", "b": "y"}))


@pytest.mark.parametrize("place", range(0, len(BODY), 3))
def test_body_that_ends_early_is_cut_and_no_call(place: int) -> None:
    [outcome] = read(BODY[:place], cut=True)
    assert isinstance(outcome, CallRefused)
    assert outcome.reason == "cut"
    assert outcome.name == "ns.any" or place < BODY.index('">')


@pytest.mark.parametrize(
    "body",
    [
        "Let me call it. " + BODY,
        BODY + " Done.",
        BODY + BODY,
        BODY.replace('name="a"', "name='a'"),
        BODY.replace('name="b"', 'name="a"'),
        BODY.replace("x</atem:parameter>\n", "x\n"),
        BODY.replace("</atem:invoke>", ""),
        BODY.replace("<atem:function_calls>", "<function_calls>"),
        BODY.replace("ns.any", "ns\nany"),
        BODY.replace("ns.any", "n" * 300),
        BODY.replace("ns.any", ""),
        BODY.replace("x", "x" * MAX_BODY_CHARS),
        "{}",
    ],
)
@pytest.mark.parametrize("split", [10**9, 1 << 12, 7])
def test_malformed_body_is_refused_whole(body: str, split: int) -> None:
    if len(body) > 1000 and split == 7:
        split = 1 << 14
    [outcome] = read(body, split=split)
    assert isinstance(outcome, CallRefused)
    assert outcome.reason == "malformed"


def test_one_bad_call_spoils_its_block() -> None:
    good = BODY.rsplit("\n", 1)[0]
    bad = '<atem:invoke name="nobody">\n</atem:invoke>\n</atem:function_calls>'
    [outcome] = read(f"{good}\n{bad}")
    assert isinstance(outcome, CallRefused)
    assert (outcome.name, outcome.reason) == ("nobody", "unknown_tool")


def test_broken_reader_says_so_before_the_end() -> None:
    reader = CallReader(ToolSet([ANY]), "ns.any")
    reader.push("<atem:func")
    assert not reader.is_broken
    reader.push("tion!")
    assert reader.is_broken
