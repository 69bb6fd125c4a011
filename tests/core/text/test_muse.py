"""Muse's prompts: the published frame, the same through a template, and nothing smuggled in."""

from dataclasses import replace
from pathlib import Path

import pytest
from glimmer_template import GLIMMER
from tiny_text import (
    MUSE_CONTROL_TOKENS,
    NOON,
    muse_ids,
    tiny_muse_prompt,
    tiny_muse_tokenizer,
    write_tokenizer,
)

from sensorium.core.errors import BadCheckpoint, CoreError
from sensorium.core.text.grammars import GRAMMARS
from sensorium.core.text.history import Entry, Said, ToolCall, ToolResult
from sensorium.core.text.muse import MusePrompt
from sensorium.core.text.sandbox import Sandbox
from sensorium.core.text.template import ChatTemplate
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.core.text.tools import BadTools, Tool, ToolSet, parse_tools

TOOLS = parse_tools(
    [
        {
            "type": "function",
            "name": "clock.at",
            "description": "The time.",
            "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
        }
    ]
)
HISTORY: list[Entry] = [
    Said(role="user", text="When?"),
    Said(role="assistant", channel="self", text="Look it up."),
    Said(role="assistant", channel="commentary", text="Looking."),
    ToolCall(name="clock.at", arguments={"zone": " Mars", "n": [1, "é"], "ok": True, "no": None}),
    ToolCall(name="clock.at", arguments={}),
    ToolResult(name="clock.at", output="12:00"),
    ToolResult(name="clock.at", output="13:00"),
    Said(role="assistant", channel="self", text="Two."),
    Said(role="assistant", text="Noon or one."),
    Said(role="system", text="Be brief."),
    Said(role="user", text="Thanks"),
]
WRITTEN = (
    "<|start|>user<|message|>When?<|eot|>"
    "<|start|>assistant to=self<|message|>Look it up.<|eom|>"
    "<|start|>assistant to=commentary<|message|>Looking.<|eom|>"
    "<|start|>assistant to=clock.at<|message|>"
    '<atem:function_calls>\n<atem:invoke name="clock.at">\n'
    '<atem:parameter name="zone"> Mars</atem:parameter>\n'
    '<atem:parameter name="n">[1, "é"]</atem:parameter>\n'
    '<atem:parameter name="ok">true</atem:parameter>\n'
    '<atem:parameter name="no">null</atem:parameter>\n'
    "</atem:invoke>\n</atem:function_calls><|eom|>"
    "<|start|>assistant to=clock.at<|message|>"
    '<atem:function_calls>\n<atem:invoke name="clock.at">\n'
    "</atem:invoke>\n</atem:function_calls><|eot|>"
    '<|start|>tool clock.at<|message|><tool_output name="clock.at">\n12:00\n</tool_output><|eot|>'
    '<|start|>tool clock.at<|message|><tool_output name="clock.at">\n13:00\n</tool_output><|eot|>'
    "<|start|>assistant to=self<|message|>Two.<|eom|>"
    "<|start|>assistant to=user<|message|>Noon or one.<|eot|>"
    "<|start|>system<|message|>Be brief.<|eot|>"
    "<|start|>user<|message|>Thanks<|eot|>"
    "<|start|>assistant"
)


def templated(source: str = GLIMMER) -> MusePrompt:
    """Return a prompt writer with a template."""
    tokenizer = tiny_muse_tokenizer()
    sandbox = Sandbox(source, now=lambda: NOON)
    template = ChatTemplate(sandbox, tokenizer, bos_token="<|begin_of_text|>")
    return MusePrompt(tokenizer, GRAMMARS["muse"], template, now=lambda: NOON)


def spelled(ids: tuple[int, ...]) -> str:
    """Return the text of ids with control tokens by name."""
    return tiny_muse_tokenizer().spell(ids)


@pytest.mark.parametrize("prompt", [tiny_muse_prompt(), templated()], ids=["ours", "template"])
def test_history_has_the_published_frame(prompt: MusePrompt) -> None:
    ids = prompt.conversation(HISTORY, instructions="S", tools=TOOLS)
    head = prompt.preamble("S", tools=TOOLS)
    assert ids[: len(head)] == head
    assert spelled(ids[len(head) :]) == WRITTEN
    assert list(ids[len(head) :]) == muse_ids(WRITTEN)


def test_system_message_names_effort_tools_and_recipients() -> None:
    text = spelled(tiny_muse_prompt().preamble("Be kind.", tools=TOOLS, effort="low"))
    assert text.startswith(
        "<|begin_of_text|><|start|>system<|message|>Be kind.\n\n"
        "Reasoning strength: low.\n\n# Tools\n"
    )
    assert '{"name": "clock", "description": ""}' in text
    assert (
        '{"name": "clock.at", "description": "The time.", "parameters": {"type": "object"' in text
    )
    assert text.endswith('\n\n# Valid recipients: "self", "clock.*", "user".<|eot|>')


@pytest.mark.parametrize("instructions", ["", None])
def test_default_line_has_the_date_and_the_highest_effort(instructions: str | None) -> None:
    assert spelled(tiny_muse_prompt().preamble(instructions)) == (
        "<|begin_of_text|><|start|>system<|message|>You are a helpful AI assistant.\n"
        "Current date: 2026-11-30.\n\nReasoning strength: xhigh.\n\n"
        '# Valid recipients: "self", "user".<|eot|>'
    )


def test_effort_that_instructions_name_is_not_named_again() -> None:
    text = spelled(tiny_muse_prompt().preamble("Reasoning effort: low.", effort="high"))
    assert text.count("Reasoning strength") == 1
    assert "Reasoning strength: low." in text


def test_unknown_effort_is_refused_with_the_known_ones() -> None:
    for prompt in (tiny_muse_prompt(), templated()):
        with pytest.raises(CoreError, match="'none'; known are low, medium, high, xhigh"):
            prompt.preamble("S", effort="none")


@pytest.mark.parametrize("name", ["reasoning_strength", "reasoning_effort"])
def test_effort_reaches_the_template_under_both_names(name: str) -> None:
    prompt = templated(GLIMMER.replace("reasoning_strength", name))
    assert "Think: low." in spelled(prompt.preamble("S", effort="low"))
    assert "Think: xhigh." in spelled(prompt.preamble("S"))
    assert "Think: medium." in spelled(prompt.conversation([], instructions="S", effort="medium"))


def test_template_writes_the_head_of_streamed_prompts() -> None:
    text = spelled(templated().preamble("", tools=TOOLS))
    assert text.startswith(
        "<|begin_of_text|><|start|>system<|message|>Template default, 30 November"
    )
    assert "Tools:\n" in text
    assert text.endswith('"clock.*", "user".<|eot|>')


def test_stop_ids_are_the_ends_of_text_and_turn() -> None:
    stops = tiny_muse_prompt().stop_token_ids
    assert list(stops) == muse_ids("<|end_of_text|><|eot|>")
    assert muse_ids("<|eom|>")[0] not in stops


def test_reply_begins_inside_the_header() -> None:
    assert list(tiny_muse_prompt().open_reply()) == muse_ids("<|start|>assistant")


EVIL = "".join(MUSE_CONTROL_TOKENS)


@pytest.mark.parametrize("prompt", [tiny_muse_prompt(), templated()], ids=["ours", "template"])
@pytest.mark.parametrize("evil", [*MUSE_CONTROL_TOKENS, EVIL, "<|", "<|start", "|>", "art|>"])
def test_control_strings_stay_text_wherever_they_are_written(prompt: MusePrompt, evil: str) -> None:
    def tokens_with(text: str) -> list[int]:
        tool = Tool(
            name="t",
            description=text,
            parameters={"type": "object", "properties": {"p": {"description": text}}, text: text},
        )
        entries: list[Entry] = [
            Said(role="user", text=text),
            Said(role="assistant", channel="self", text=text),
            ToolCall(name="t", arguments={"p": text, "q": [text]}),
            ToolResult(name="t", output=text),
            Said(role="assistant", text=text),
        ]
        return list(prompt.conversation(entries, instructions=text, tools=ToolSet([tool])))

    harmless = [token_id for token_id in tokens_with("harmless") if token_id >= 256]
    ids = tokens_with(evil)
    assert [token_id for token_id in ids if token_id >= 256] == harmless
    assert spelled(tuple(ids)).count(evil) >= 9
    assert spelled(prompt.text(evil)) == evil
    assert all(token_id < 256 for token_id in prompt.text(evil))


@pytest.mark.parametrize("name", ["x<|message|>", "t to=self", "a\nb", "", "user"])
def test_name_that_would_change_a_header_is_refused(name: str) -> None:
    for entry in (ToolCall(name=name, arguments={}), ToolResult(name=name, output="")):
        with pytest.raises(BadTools):
            tiny_muse_prompt().entry(entry)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<|start|>assistant to=user<|message|>", "<|start|>assistant<|message|>"),
        ("'<|message|>' ~ message.content ~ '<|eot|>'", "'<|message|>' ~ message.content"),
        ("{{- bos_token -}}", ""),
        ("{{- '<|start|>assistant' -}}", "{{- '<|start|>assistant<|message|>' -}}"),
        ("{{- bos_token -}}", "{{- raise_exception('never') -}}"),
        (
            "{{- bos_token -}}",
            "{%- for i in range(999) %}{%- for j in range(999) %}{% endfor %}{% endfor -%}",
        ),
    ],
)
def test_template_that_writes_otherwise_is_refused(old: str, new: str) -> None:
    assert old in GLIMMER
    with pytest.raises(BadCheckpoint, match="chat template"):
        templated(GLIMMER.replace(old, new))


def test_template_that_drops_reasoning_is_followed() -> None:
    prompt = templated(GLIMMER.replace("{%- if message.reasoning_content -%}", "{%- if false -%}"))
    text = spelled(prompt.conversation(HISTORY, instructions="S"))
    assert "Look it up." not in text
    assert "<|start|>assistant to=user<|message|>Noon or one.<|eot|>" in text


@pytest.mark.parametrize("modality", ["audio", "image", "video"])
def test_media_marks_are_found_by_name(modality: str) -> None:
    marks = tiny_muse_prompt().media_marks(modality)
    assert marks is not None
    names = {
        "audio": "<|soft_audio_start|><|audio|><|soft_audio_end|>",
        "image": "<|image_start|><|patch|><|image_end|>",
        "video": "<|vid_start|><|video|><|vid_end|>",
    }
    assert [marks.start, marks.placeholder, marks.end] == muse_ids(names[modality])
    separator = muse_ids("<|vid_frame_separator|>")[0] if modality == "video" else None
    assert marks.separator == separator


def test_missing_control_token_is_named(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, [name for name in MUSE_CONTROL_TOKENS if "soft_audio" not in name])
    prompt = MusePrompt(Tokenizer(tmp_path), GRAMMARS["muse"])
    with pytest.raises(BadCheckpoint, match=r"<\|soft_audio_start\|> and <\|soft_audio_end\|>"):
        prompt.media_marks("audio")
    assert prompt.media_marks("image") is not None
    assert prompt.media_marks("smell") is None
    grammar = replace(GRAMMARS["muse"], stop_tokens=("<|nope|>",))
    with pytest.raises(BadCheckpoint, match="nope"):
        MusePrompt(tiny_muse_tokenizer(), grammar)
