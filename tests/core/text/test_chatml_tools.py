"""Grammars of ChatML's tool calls: whatever a model would write, its calls are valid ones."""

import json
import random
from collections.abc import Sequence
from typing import Any

import llguidance
import pytest
from tiny_text import tiny_prompt

from sensorium.core.api import Constraint
from sensorium.core.text.channels import ChannelEvent, answer_of
from sensorium.core.text.chatml_tools import MAX_CALLS, must_call, section, write_call, write_result
from sensorium.core.text.history import Entry, Said, ToolCall, ToolResult
from sensorium.core.text.tools import BadTools, CallMade, CallRefused, Tool, ToolSet

ADD = Tool(
    name="add",
    description="Adds.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/Sign"}},
        "required": ["a", "b"],
        "$defs": {"Sign": {"enum": ["+", "-"]}},
    },
)
NOW = Tool(name="clock.now", description="", parameters={"type": "object"})
TOOLS = ToolSet([ADD, NOW])
EOS = 256


class ByteVocabulary:
    """One token per byte and an end, as llguidance takes a vocabulary."""

    eos_token_id = EOS
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"<|end|>")
    special_token_ids = (EOS,)

    def __call__(self, text: str | bytes) -> list[int]:
        """Return the ids of a text."""
        return list(text.encode() if isinstance(text, str) else text)


VOCABULARY = llguidance.LLTokenizer(llguidance.TokenizerWrapper(ByteVocabulary()))


def matcher(constraint: Constraint) -> Any:
    """Return the automaton of a grammar that compiles."""
    assert constraint.kind == "lark"
    grammar = llguidance.grammar_from("lark", constraint.grammar)
    made = llguidance.LLMatcher(VOCABULARY, grammar)
    assert made.get_error() == ""
    return made


def accepts(constraint: Constraint, text: str) -> bool:
    """Tell whether a whole answer fits."""
    made = matcher(constraint)
    ids = list(text.encode())
    return bool(made.try_consume_tokens(ids) == len(ids) and made.is_accepting())


def babble(constraint: Constraint, seed: int, favourites: str, max_tokens: int = 600) -> str:
    """Return what a model writes that picks allowed bytes at random, mostly its favourites."""
    made, chance = matcher(constraint), random.Random(seed)
    written: list[int] = []
    while not made.is_stopped() and len(written) < max_tokens:
        mask = made.compute_bitmask()
        allowed = [i for i in range(257) if mask[i // 8] >> (i % 8) & 1]
        liked = [i for i in allowed if i == EOS or i in favourites.encode()]
        token_id = chance.choice(liked or allowed)
        assert made.consume_token(token_id)
        if token_id != EOS:
            written.append(token_id)
    assert made.is_stopped()
    return bytes(written).decode()


def events_of(text: str, tools: ToolSet = TOOLS) -> list[ChannelEvent]:
    """Return how an answer is read."""
    stream = tiny_prompt().stream(tools)
    return stream.push(tiny_prompt().text(text)) + stream.finish()


def calls_of(text: str) -> Sequence[ToolCall]:
    """Return the calls of an answer, none of which is refused."""
    events = events_of(text)
    assert not [event for event in events if isinstance(event, CallRefused)]
    return [event.call for event in events if isinstance(event, CallMade)]


FAVOURITES = '"}],0123</tool_call>'
"""What ends numbers, texts, objects and answers soon."""


@pytest.mark.parametrize("seed", range(12))
def test_required_call_is_valid_whatever_the_model_likes(seed: int) -> None:
    constraint = tiny_prompt().tool_constraint(TOOLS, "required")
    assert constraint is not None
    text = babble(constraint, seed, FAVOURITES)
    calls = calls_of(text)
    assert 1 <= len(calls) <= MAX_CALLS
    assert answer_of(events_of(text)) == ""
    for call in calls:
        if call.name == "add":
            assert isinstance(call.arguments["a"], int)
            assert call.arguments["b"] in ("+", "-")


@pytest.mark.parametrize("seed", range(4))
def test_named_tool_is_the_one_that_is_called_once(seed: int) -> None:
    constraint = tiny_prompt().tool_constraint(TOOLS, "add")
    assert constraint is not None
    assert [call.name for call in calls_of(babble(constraint, seed, FAVOURITES))] == ["add"]


@pytest.mark.parametrize("seed", range(12))
def test_free_answer_is_text_or_valid_calls(seed: int) -> None:
    constraint = tiny_prompt().tool_constraint(TOOLS)
    assert constraint is not None
    calls_of(babble(constraint, seed, "<tool_call>\n{}" if seed % 2 else "Hello <b>", 3000))


GOOD = write_call(ToolCall(name="add", arguments={"a": 1, "b": "+"}))


@pytest.mark.parametrize(
    ("text", "free", "required"),
    [
        (GOOD, True, True),
        (f"{GOOD}\n{GOOD}", True, True),
        (f"I add.\n{GOOD}", True, False),
        ("Hello <b> there", True, False),
        ("a <tool", True, False),
        ("", False, False),
        ("a <tool_call> b", False, False),
        (f"{GOOD} and", False, False),
        (GOOD.replace("add", "sub"), False, False),
        (GOOD.replace('"a": 1, ', ""), False, False),
        (GOOD.replace('"+"', '"*"'), False, False),
        (GOOD.replace('"a": 1', '"a": 1, "c": 2'), False, False),
        ("\n".join([GOOD] * (MAX_CALLS + 1)), False, False),
        (write_call(ToolCall(name="clock.now", arguments={})), True, True),
    ],
)
def test_grammar_takes_what_is_right(text: str, free: bool, required: bool) -> None:
    prompt = tiny_prompt()
    for choice, expected in (("auto", free), ("required", required)):
        constraint = prompt.tool_constraint(TOOLS, choice)
        assert constraint is not None
        assert accepts(constraint, text) is expected, choice


def test_calls_may_be_limited_to_one() -> None:
    one = must_call(list(TOOLS), parallel=False)
    assert accepts(one, GOOD)
    assert not accepts(one, f"{GOOD}\n{GOOD}")


def test_without_tools_nothing_is_constrained_and_unknown_ones_are_refused() -> None:
    assert tiny_prompt().tool_constraint(ToolSet([]), "required") is None
    with pytest.raises(BadTools, match="'sub'; declared are add"):
        tiny_prompt().tool_constraint(TOOLS, "sub")


def test_answer_of_a_schema_is_constrained_from_its_start() -> None:
    constraint = tiny_prompt().constraint('{"type": "object"}')
    assert (constraint.kind, constraint.begin) == ("json_schema", None)


def test_prompt_declares_tools_and_tells_calls_and_results() -> None:
    prompt = tiny_prompt()
    entries: list[Entry] = [
        Said(role="user", text="1+1?"),
        Said(role="assistant", text="I add."),
        ToolCall(name="add", arguments={"a": 1, "b": "+"}),
        ToolResult(name="add", output='2 "é"'),
    ]
    result = write_result(ToolResult(name="add", output='2 "é"'))
    text = prompt.tokenizer.spell(prompt.conversation(entries, instructions="S", tools=TOOLS))
    assert text == (
        f"<|im_start|>system\nS\n\n{section(TOOLS)}<|im_end|>\n"
        "<|im_start|>user\n1+1?<|im_end|>\n"
        f"<|im_start|>assistant\nI add.\n{GOOD}<|im_end|>\n"
        f"<|im_start|>tool\n{result}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert json.dumps(ADD.declaration()) in section(TOOLS)
    assert '{"name": "add", "content": "2 \\"é\\""}' in text


def test_reasoning_is_no_part_of_the_history() -> None:
    thought = Said(role="assistant", channel="self", text="hm")
    assert tiny_prompt().entry(thought) == ()
    assert tiny_prompt().conversation([thought], instructions="S") == (
        *tiny_prompt().preamble("S"),
        *tiny_prompt().open_reply(),
    )


@pytest.mark.parametrize("evil", ["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
def test_control_strings_stay_text_wherever_they_are_written(evil: str) -> None:
    def control_tokens(text: str) -> list[int]:
        tool = Tool(name="t", description=text, parameters={"type": "object", text: text})
        entries: list[Entry] = [
            Said(role="user", text=text),
            ToolCall(name="t", arguments={text: text}),
            ToolResult(name="t", output=text),
        ]
        prompt = tiny_prompt()
        ids = prompt.conversation(entries, instructions=text, tools=ToolSet([tool]))
        return [token_id for token_id in ids if token_id >= 256]

    assert control_tokens(evil) == control_tokens("harmless")


def test_name_that_would_change_the_markup_is_refused() -> None:
    for entry in (ToolCall(name="a\nb", arguments={}), ToolResult(name="user", output="")):
        with pytest.raises(BadTools):
            tiny_prompt().entry(entry)
