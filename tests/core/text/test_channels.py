"""Answers as they stream: one channel, whole characters, nothing lost, calls taken out."""

import pytest
from tiny_text import tiny_prompt

from sensorium.core.text.channels import (
    ChannelDelta,
    ChannelEvent,
    MessageBegan,
    MessageEnded,
    TextStream,
    answer_of,
)
from sensorium.core.text.history import ToolCall
from sensorium.core.text.tools import CallMade, CallRefused, Tool, ToolSet

CLOCK = Tool(
    name="clock",
    description="",
    parameters={
        "type": "object",
        "properties": {"zone": {"type": "string"}},
        "required": ["zone"],
    },
)
TOOLS = ToolSet([CLOCK])
TOKENIZER = tiny_prompt().tokenizer
CALL = '<tool_call>\n{"name": "clock", "arguments": {"zone": "Mars"}}\n</tool_call>'
MADE = CallMade(call=ToolCall(name="clock", arguments={"zone": "Mars"}))


def read(text: str, *, cut: bool = False, tools: ToolSet | None = TOOLS) -> list[ChannelEvent]:
    """Return the events of an answer, checked to be those of every split of it."""
    ids = TOKENIZER.encode(text)
    results = []
    for size in (len(ids) + 1, 1, 2, 5):
        stream = TextStream(TOKENIZER, tools)
        events = [e for at in range(0, len(ids), size) for e in stream.push(ids[at : at + size])]
        results.append(joined(events + stream.finish(cut=cut)))
    assert all(result == results[0] for result in results)
    return results[0]


def joined(events: list[ChannelEvent]) -> list[ChannelEvent]:
    """Return events with neighbouring texts of a channel made one."""
    made: list[ChannelEvent] = []
    for event in events:
        last = made[-1] if made else None
        if isinstance(event, ChannelDelta) and isinstance(last, ChannelDelta):
            made[-1] = ChannelDelta(channel=last.channel, text=last.text + event.text)
        else:
            made.append(event)
    return made


def test_answer_goes_to_the_user_piece_by_piece() -> None:
    stream = TextStream(TOKENIZER)
    ids = TOKENIZER.encode("Paris 👍🏽!")
    events = [event for token_id in ids for event in stream.push([token_id])] + stream.finish()
    assert events[0] == MessageBegan(channel="user")
    assert events[-1] == MessageEnded(channel="user", end="eot")
    deltas = events[1:-1]
    assert all(isinstance(delta, ChannelDelta) and delta.text for delta in deltas)
    assert len(deltas) > 1
    assert answer_of(deltas) == "Paris 👍🏽!"


def test_held_emoji_comes_at_the_end() -> None:
    stream = TextStream(TOKENIZER)
    assert stream.push(TOKENIZER.encode("🚀")) == []
    assert answer_of(stream.finish()) == "🚀"
    assert stream.finish() == []


def test_only_the_final_answer_is_shown() -> None:
    events: list[ChannelEvent] = [
        ChannelDelta(channel="self", text="hm"),
        ChannelDelta(channel="user", text="yes"),
        ChannelDelta(channel="clock", text="<atem"),
    ]
    assert answer_of(events) == "yes"


def test_call_is_taken_out_of_the_text() -> None:
    events = read(f"Let me look.\n{CALL}\n{CALL}\n")
    assert events == [
        MessageBegan(channel="user"),
        ChannelDelta(channel="user", text="Let me look.\n"),
        MADE,
        MADE,
        MessageEnded(channel="user", end="eot"),
    ]


def test_text_goes_on_behind_a_call() -> None:
    events = read(f"{CALL}\n\nSoon <b>more</b> <tool")
    assert events[1] == MADE
    assert answer_of(events) == "Soon <b>more</b> <tool"


def test_without_tools_a_call_is_text() -> None:
    assert answer_of(read(CALL, tools=None)) == CALL


def test_end_mark_inside_an_argument_ends_nothing() -> None:
    zone = 'a \\" </tool_call> b'
    text = f'<tool_call>\n{{"name": "clock", "arguments": {{"zone": "{zone}"}}}}\n</tool_call>'
    [_, made, _] = read(text)
    assert isinstance(made, CallMade)
    assert made.call.arguments == {"zone": 'a " </tool_call> b'}


@pytest.mark.parametrize(
    ("text", "cut", "reason"),
    [
        (CALL[:-4], True, "cut"),
        (CALL[:-4], False, "malformed"),
        ("<tool_call>{'name': 1}</tool_call>", False, "malformed"),
        ('<tool_call>{"name": "clock"}</tool_call>', False, "malformed"),
        ('<tool_call>{"name": "clock", "arguments": "{}"}</tool_call>', False, "malformed"),
        ('<tool_call>{"name": "clock", "arguments": {}}</tool_call>', False, "bad_arguments"),
        ('<tool_call>{"name": "cook", "arguments": {}}</tool_call>', False, "unknown_tool"),
        ("<tool_call>" + "[" * 3000 + "</tool_call>", False, "malformed"),
    ],
)
def test_bad_call_is_refused_and_never_shown(text: str, cut: bool, reason: str) -> None:
    [_, refused, _] = read(text, cut=cut)
    assert isinstance(refused, CallRefused)
    assert refused.reason == reason


def test_half_a_mark_is_dropped_at_a_cut() -> None:
    assert answer_of(read("Well <tool_c", cut=True)) == "Well "
    assert answer_of(read("a < b", cut=True)) == "a < b"
