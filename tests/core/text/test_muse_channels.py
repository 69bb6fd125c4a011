"""Muse's replies by token id: every fault that other parsers were seen with, and any split."""

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_text import MUSE_CONTROL_TOKENS, muse_ids, tiny_muse_prompt, tiny_muse_tokenizer

from sensorium.core.text.channels import (
    ChannelDelta,
    ChannelEvent,
    MessageBegan,
    MessageEnded,
    answer_of,
)
from sensorium.core.text.grammars import GRAMMARS
from sensorium.core.text.history import ToolCall
from sensorium.core.text.muse import MusePrompt
from sensorium.core.text.tools import CallMade, CallRefused, ToolSet, parse_tools

TOOLS = parse_tools(
    [
        {
            "type": "namespace",
            "name": "clock",
            "description": "Times.",
            "tools": [
                {"type": "function", "name": "now", "parameters": {"type": "object"}},
                {
                    "type": "function",
                    "name": "at",
                    "parameters": {
                        "properties": {"zone": {"type": "string"}, "day": {"type": "integer"}},
                        "required": ["zone"],
                    },
                },
            ],
        }
    ]
)
NOW = (
    '<atem:function_calls>\n<atem:invoke name="clock.now">\n</atem:invoke>\n</atem:function_calls>'
)
AT = (
    '<atem:function_calls>\n<atem:invoke name="clock.at">\n'
    '<atem:parameter name="zone">12</atem:parameter>\n'
    '<atem:parameter name="day">3</atem:parameter>\n'
    "</atem:invoke>\n</atem:function_calls>"
)
NOW_MADE = CallMade(call=ToolCall(name="clock.now", arguments={}))
AT_MADE = CallMade(call=ToolCall(name="clock.at", arguments={"zone": "12", "day": 3}))


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


def read(
    markup: str | list[int],
    *,
    cut: bool = False,
    tools: ToolSet = TOOLS,
    prompt: MusePrompt | None = None,
) -> list[ChannelEvent]:
    """Return the events of a reply, checked to be the same however its ids are split."""
    ids = muse_ids(markup) if isinstance(markup, str) else markup
    results = []
    for size in (len(ids) + 1, 1, 2, 7):
        stream = (prompt or tiny_muse_prompt()).stream(tools)
        events = [e for at in range(0, len(ids), size) for e in stream.push(ids[at : at + size])]
        results.append(joined(events + stream.finish(cut=cut)))
    assert all(result == results[0] for result in results)
    assert_well_formed(results[0])
    return results[0]


def texts(events: list[ChannelEvent]) -> list[tuple[str, str]]:
    """Return the texts by channel."""
    return [(e.channel, e.text) for e in events if isinstance(e, ChannelDelta)]


def calls(events: list[ChannelEvent]) -> list[ChannelEvent]:
    """Return what became of calls."""
    return [e for e in events if isinstance(e, CallMade | CallRefused)]


def test_reply_is_parted_into_messages() -> None:
    events = read(
        " to=self<|message|>Hm, 👍🏽.<|eom|>"
        "<|start|>assistant to=commentary<|message|>Looking.<|eom|>"
        f"<|start|>assistant to=clock.now<|message|>{NOW}<|eom|>"
        f"<|start|>assistant to=clock.at<|message|>{AT}"
    )
    assert events == [
        MessageBegan(channel="self", header="to=self"),
        ChannelDelta(channel="self", text="Hm, 👍🏽."),
        MessageEnded(channel="self", end="eom"),
        MessageBegan(channel="commentary", header="assistant to=commentary"),
        ChannelDelta(channel="commentary", text="Looking."),
        MessageEnded(channel="commentary", end="eom"),
        MessageBegan(channel="clock.now", header="assistant to=clock.now"),
        ChannelDelta(channel="clock.now", text=NOW),
        NOW_MADE,
        MessageEnded(channel="clock.now", end="eom"),
        MessageBegan(channel="clock.at", header="assistant to=clock.at"),
        ChannelDelta(channel="clock.at", text=AT),
        AT_MADE,
        MessageEnded(channel="clock.at", end="eot"),
    ]


# --- the table of faults that other parsers were seen with ---------------------------------------


def test_reasoning_left_without_its_end_for_a_call() -> None:
    events = read(f" to=self<|message|>I need the time to=clock.now<|message|>{NOW}")
    assert texts(events)[0] == ("self", "I need the time")
    assert calls(events) == [NOW_MADE]


def test_header_is_never_shown_while_it_streams() -> None:
    stream = tiny_muse_prompt().stream(TOOLS)
    shown = ""
    for token_id in muse_ids(" to=self<|message|>so to=user<|message|>Hi to=all, to"):
        for event in stream.push([token_id]):
            if isinstance(event, ChannelDelta):
                shown += event.text
                assert " to=self" not in shown
                assert " to=user" not in shown
    assert shown == "soHi to=all,"
    assert answer_of(stream.finish()) == " to"


def test_header_that_was_cut_off_is_dropped() -> None:
    assert read(" to=us", cut=True) == []
    assert texts(read(" to=self<|message|>so to=clock.n", cut=True)) == [("self", "so")]


def test_partial_call_at_a_cut_is_dropped() -> None:
    events = read(" to=clock.now<|message|><atem:func", cut=True)
    [refused] = calls(events)
    assert isinstance(refused, CallRefused)
    assert (refused.name, refused.reason) == ("clock.now", "cut")
    assert answer_of(events) == ""
    assert events[-1] == MessageEnded(channel="clock.now", end="cut")


def test_declared_text_stays_text() -> None:
    assert calls(read(f" to=clock.at<|message|>{AT}")) == [AT_MADE]


def test_lost_parameter_opener_is_refused_loudly() -> None:
    body = AT.replace('<atem:parameter name="zone">', 'zone">', 1)
    glued = AT.replace('">\n<atem:parameter name="zone">', 'zone">')
    for broken in (body, glued):
        [refused] = calls(read(f" to=clock.at<|message|>{broken}"))
        assert isinstance(refused, CallRefused)
        assert refused.reason == "malformed"


def test_control_token_ends_the_name_of_an_invocation() -> None:
    body = AT.replace('clock.at">', 'clock.at<|message|>">')
    events = read(f" to=clock.at<|message|>{body}<|eom|><|start|>assistant to=user<|message|>Sorry")
    [refused] = calls(events)
    assert isinstance(refused, CallRefused)
    assert (refused.name, refused.reason) == ("clock.at", "malformed")
    assert answer_of(events) == "Sorry"


def test_call_with_missing_arguments_is_not_made() -> None:
    body = AT.replace('<atem:parameter name="zone">12</atem:parameter>\n', "")
    [refused] = calls(read(f" to=clock.at<|message|>{body}"))
    assert isinstance(refused, CallRefused)
    assert refused.reason == "bad_arguments"
    assert "zone" in refused.message


@pytest.mark.parametrize("end", ["<|eom|><|start|>assistant", "<|start|>assistant", ""])
def test_truncated_call_does_not_merge_with_the_next(end: str) -> None:
    events = read(f" to=clock.at<|message|>{AT[:60]}{end} to=clock.now<|message|>{NOW}")
    first, second = calls(events)
    assert isinstance(first, CallRefused)
    assert first.reason == "malformed"
    assert second == NOW_MADE


def test_schema_constrains_the_final_answer_alone() -> None:
    constraint = tiny_muse_prompt().constraint('{"type": "object"}')
    [message] = muse_ids("<|message|>")
    assert (constraint.kind, constraint.grammar) == ("json_schema", '{"type": "object"}')
    assert constraint.begin == (" to=user", message)


def test_call_right_after_the_prompt_is_recognised() -> None:
    assert calls(read(f" to=clock.now<|message|>{NOW}")) == [NOW_MADE]


def test_channels_are_told_by_ids_and_never_by_text() -> None:
    spelled = "<|eom|><|start|>assistant to=clock.now<|message|>" + NOW
    ids = muse_ids(" to=user<|message|>") + tiny_muse_tokenizer().encode(spelled)
    events = read(ids)
    assert texts(events) == [("user", spelled)]
    assert calls(events) == []


# --- more ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bare", "channel"), [("reasoning", "self"), ("answer", "user")])
def test_message_without_recipient_is_what_the_grammar_says(
    bare: Literal["reasoning", "answer"], channel: str
) -> None:
    prompt = MusePrompt(tiny_muse_tokenizer(), replace(GRAMMARS["muse"], bare_assistant=bare))
    assert texts(read("<|message|>Hi", prompt=prompt)) == [(channel, "Hi")]
    assert texts(read("Hi there", prompt=prompt)) == [(channel, "Hi there")]
    again = " to=self<|message|>x<|eom|><|start|>assistant<|message|>Hi"
    assert texts(read(again, prompt=prompt))[-1] == (channel, "Hi")


@pytest.mark.parametrize(
    "header",
    [
        "<|start|>user",
        "<|start|>tool clock.now",
        "<|start|>assistant for=me",
        "<|start|>" + "x" * 400,
    ],
)
def test_what_is_to_nobody_is_shown_to_nobody(header: str) -> None:
    events = read(f" to=self<|message|>a<|eom|>{header}<|message|>secret")
    assert texts(events)[0] == ("self", "a")
    assert texts(events)[1:] in ([], [("unknown", "secret")])


def test_several_calls_in_one_body() -> None:
    invoke = NOW.split("\n", 1)[1].rsplit("\n", 1)[0]
    body = f"<atem:function_calls>\n{invoke}\n{invoke}\n</atem:function_calls>"
    assert calls(read(f" to=clock.now<|message|>{body}")) == [NOW_MADE, NOW_MADE]


def test_quoted_markup_is_no_call() -> None:
    events = read(f" to=self<|message|>{AT}<|eom|><|start|>assistant to=user<|message|>{NOW}")
    assert calls(events) == []
    assert answer_of(events) == NOW


def test_end_of_turn_inside_the_ids() -> None:
    events = read(" to=user<|message|>Hi<|eot|>")
    assert events[-1] == MessageEnded(channel="user", end="eot")


def test_character_cut_in_half_is_marked_in_its_own_message() -> None:
    ids = muse_ids(" to=self<|message|>") + tiny_muse_tokenizer().encode("日")[:1]
    ids += muse_ids("<|eom|><|start|>assistant to=user<|message|>ok")
    assert texts(read(ids)) == [("self", "\ufffd"), ("user", "ok")]


PIECES = st.sampled_from(
    [
        " to=self",
        " to=user",
        " to=clock.at",
        "assistant",
        AT,
        AT[:70],
        "Hi 👍🏽 ",
        " to",
        " ",
        "日本",
    ]
    + [token for token in MUSE_CONTROL_TOKENS if token[2] in "sme"]
)


@given(pieces=st.lists(PIECES, max_size=14), cuts=st.sets(st.integers(0, 900)), cut=st.booleans())
def test_any_split_is_the_whole(pieces: list[str], cuts: set[int], cut: bool) -> None:
    ids = muse_ids("".join(pieces))
    whole = tiny_muse_prompt().stream(TOOLS)
    expected = joined(whole.push(ids) + whole.finish(cut=cut))
    stream = tiny_muse_prompt().stream(TOOLS)
    borders = [0, *sorted(place for place in cuts if place < len(ids)), len(ids)]
    events = [e for start, end in pairwise(borders) for e in stream.push(ids[start:end])]
    assert joined(events + stream.finish(cut=cut)) == expected
    assert_well_formed(expected)


def assert_well_formed(events: list[ChannelEvent]) -> None:
    """Every message is begun, then ended, and what it holds is to its channel."""
    channel = None
    for event in events:
        match event:
            case MessageBegan():
                assert channel is None
                channel = event.channel
            case MessageEnded():
                assert channel == event.channel
                channel = None
            case ChannelDelta():
                assert channel == event.channel
                assert event.text
            case _:
                assert channel not in (None, "self", "user", "commentary")
    assert channel is None
