"""What of a generation is an answer: texts, calls, and why it ended."""

from collections.abc import Sequence
from typing import Literal

import pytest
from tiny_text import muse_ids, tiny_muse_prompt, tiny_prompt

from sensorium.core.text.tools import ToolSet, parse_tools
from sensorium.gateway.errors import InternalError
from sensorium.gateway.http.chat_answer import AnswerReader, Called, Shown
from sensorium.gateway.http.chat_tools import ToolUse

PARAMETERS = {"properties": {"x": {"type": "integer"}}, "required": ["x"]}
TOOLS = parse_tools([{"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}])
USE = ToolUse(tools=TOOLS, callable_tools=TOOLS)
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'


def muse_call(*arguments: str, name: str = "f") -> str:
    values = "".join(f'<atem:parameter name="x">{x}</atem:parameter>' for x in arguments)
    body = f'<atem:invoke name="{name}">{values}</atem:invoke>'
    return f" to={name}<|message|><atem:function_calls>{body}</atem:function_calls>"


def chatml(use: ToolUse = USE, stops: Sequence[str] = ()) -> AnswerReader:
    return AnswerReader(tiny_prompt().stream(use.tools), use=use, stops=stops)


def muse(use: ToolUse = USE) -> AnswerReader:
    return AnswerReader(tiny_muse_prompt().stream(use.tools), use=use)


def read(
    reader: AnswerReader, ids: Sequence[int], ended: Literal["stop", "length"] = "stop"
) -> tuple[str, list[object], str]:
    """Return the text, the arguments of the calls, and OpenAI's reason of the end."""
    pieces = [piece for token_id in ids if not reader.is_done for piece in reader.push([token_id])]
    reason = reader.reason("interrupted" if reader.is_done else ended)
    if not reader.is_done:
        pieces += reader.finish(cut=ended != "stop")
        reason = reader.reason(ended)
    text = "".join(piece.text for piece in pieces if isinstance(piece, Shown))
    return text, [dict(p.call.arguments) for p in pieces if isinstance(p, Called)], reason


def ids_of(text: str) -> list[int]:
    return tiny_prompt().tokenizer.encode(text)


def test_text_and_calls_are_parted() -> None:
    assert read(chatml(), ids_of(f"Wait.{CALL}\n{CALL}")) == (
        "Wait.",
        [{"x": 1}, {"x": 1}],
        "tool_calls",
    )
    ids = muse_ids(f" to=user<|message|>Wait.<|eom|>{muse_call('1')}<|eom|>{muse_call('2')}")
    assert read(muse(), ids) == ("Wait.", [{"x": 1}, {"x": 2}], "tool_calls")


def test_only_the_first_of_calls_is_made_unless_parallel() -> None:
    alone = ToolUse(tools=TOOLS, callable_tools=TOOLS, parallel=False)
    assert read(chatml(alone), ids_of(f"{CALL}\n{CALL}")) == ("", [{"x": 1}], "tool_calls")
    both = muse_call("1").replace("</atem:invoke>", '</atem:invoke><atem:invoke name="f">'
        '<atem:parameter name="x">2</atem:parameter></atem:invoke>')  # fmt: skip
    assert read(muse(alone), muse_ids(f"{both}<|eom|>{muse_call('3')}")) == (
        "",
        [{"x": 1}],
        "tool_calls",
    )


@pytest.mark.parametrize("length", range(1, len(CALL)))
def test_call_that_is_cut_is_none(length: int) -> None:
    text, calls, reason = read(chatml(), ids_of(CALL[:length]), "length")
    assert (text, calls, reason) == ("", [], "length")
    begun = read(chatml(), ids_of(f"{CALL}\n{CALL[:length]}"), "length")
    assert begun == ("", [{"x": 1}], "length")


def test_muse_call_that_is_cut_is_none() -> None:
    ids = muse_ids(muse_call("1"))
    for length in range(1, len(ids)):
        assert read(muse(), ids[:length], "length") == ("", [], "length")


def test_stop_strings_are_for_texts_alone() -> None:
    assert read(chatml(stops=["name"]), ids_of(CALL)) == ("", [{"x": 1}], "tool_calls")
    assert read(chatml(stops=["name"]), ids_of("My name")) == ("My ", [], "stop")
    assert read(chatml(stops=["no"]), ids_of(f"{CALL} on n")) == ("on n", [{"x": 1}], "tool_calls")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (muse_call("1", name="g"), "no tool 'g'"),
        (muse_call(), "lacks x"),
        (" to=f<|message|>Hello?<|eom|>", "something else"),
        (" to=f<|message|><atem:function_calls><|eom|>", "end is missing"),
    ],
)
def test_call_that_cannot_be_made_fails_the_answer_and_says_why(body: str, told: str) -> None:
    with pytest.raises(InternalError, match=told) as failed:
        read(muse(), muse_ids(f" to=user<|message|>Wait.<|eom|>{body}"))
    assert failed.value.code == "invalid_tool_call"


def test_call_of_a_tool_that_nobody_offered_is_not_for_the_user() -> None:
    none = ToolUse(tools=ToolSet(()))
    ids = muse_ids(f"{muse_call('1')}<|eom|> to=user<|message|>Hi.")
    assert read(muse(none), ids) == ("Hi.", [], "stop")
    assert read(chatml(none), ids_of(CALL)) == (CALL, [], "stop")
