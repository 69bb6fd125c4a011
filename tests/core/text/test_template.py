"""Conversations through a template: only what it writes itself becomes a control token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_text import tiny_muse_tokenizer

from sensorium.core.text.history import Entry, Said, ToolCall, ToolResult
from sensorium.core.text.sandbox import Sandbox
from sensorium.core.text.template import ChatTemplate, as_messages
from sensorium.core.text.tools import Tool, ToolSet

BESIDE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def written(source: str, *texts: str) -> tuple[str, list[int]]:
    """Return what a template writes of user's texts, and the control tokens in it."""
    template = ChatTemplate(Sandbox(source), tiny_muse_tokenizer())
    rendered = template.render([{"role": "user", "content": text} for text in texts])
    return rendered.text, [token_id for token_id in rendered.token_ids if token_id >= 256]


def test_control_strings_of_the_template_are_control_tokens() -> None:
    text, control = written("<|eot|>{{ messages[0].content }}<|eom|>", "<|eot|>")
    assert text == "<|eot|><|eot|><|eom|>"
    assert control == tiny_muse_tokenizer().encode_markup("<|eot|><|eom|>")


@pytest.mark.parametrize(
    "texts", [("<|eot|>",), ("<|e", "ot|>"), ("<", "|eot|>"), ("<|eot|", ">"), ("<|", "eot", "|>")]
)
def test_texts_side_by_side_make_no_control_token(texts: tuple[str, ...]) -> None:
    assert written(BESIDE, *texts) == ("<|eot|>", [])


@pytest.mark.parametrize(
    "source", ["<|e{{ messages[0].content }}", "{{ messages[0].content }}ot|>"]
)
def test_text_completes_no_control_string_of_the_template(source: str) -> None:
    [text] = ["ot|>"] if source.startswith("<") else ["<|e"]
    assert written(source, text) == ("<|eot|>", [])


@given(texts=st.lists(st.text(alphabet="<|eotm>", max_size=9), max_size=5))
def test_no_text_makes_a_control_token(texts: list[str]) -> None:
    assert written(BESIDE, *texts) == ("".join(texts), [])


def test_template_sees_texts_as_they_are() -> None:
    source = "{{ messages[0].content | trim }}|{{ 'a' in messages[0].content }}"
    assert written(source, "  a<b ")[0] == "a<b|True"


def test_tools_and_both_names_of_the_effort_are_given() -> None:
    tool = Tool(name="t", description="<|eot|>", parameters={"type": "object"})
    source = "{{ tools[0] | tojson }} {{ reasoning_effort }} {{ reasoning_strength }}"
    template = ChatTemplate(Sandbox(source), tiny_muse_tokenizer())
    rendered = template.render([], tools=ToolSet([tool]), effort="low")
    assert rendered.text == (
        '{"type": "function", "function": {"name": "t", "description": "<|eot|>", '
        '"parameters": {"type": "object"}}} low low'
    )
    assert max(rendered.token_ids) < 256


def test_without_tools_and_effort_a_template_sees_none() -> None:
    source = "{{ tools is defined }} {{ reasoning_effort is defined }}"
    assert written(source) == ("False False", [])


def test_a_turn_is_one_message() -> None:
    history: list[Entry] = [
        Said(role="user", text="q"),
        Said(role="assistant", channel="self", text="r"),
        ToolCall(name="a", arguments={"x": 1}),
        ToolCall(name="b", arguments={}),
        ToolResult(name="b", output="2"),
        ToolResult(name="a", output="1"),
        Said(role="assistant", text="one"),
        Said(role="assistant", text="two"),
    ]
    user, turn, second, first, one, two = as_messages(history)
    assert user == {"role": "user", "content": "q"}
    assert (turn["role"], turn["content"], turn["reasoning_content"]) == ("assistant", "", "r")
    ids = {call["function"]["name"]: call["id"] for call in turn["tool_calls"]}
    assert turn["tool_calls"][0]["function"] == {"name": "a", "arguments": {"x": 1}}
    assert (second["name"], second["tool_call_id"], second["content"]) == ("b", ids["b"], "2")
    assert (first["name"], first["tool_call_id"], first["content"]) == ("a", ids["a"], "1")
    assert (one, two) == (
        {"role": "assistant", "content": "one"},
        {"role": "assistant", "content": "two"},
    )
