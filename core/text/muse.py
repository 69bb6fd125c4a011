"""Muse's prompts: `<|start|>` role, recipient or tool `<|message|>` body `<|eom|>` or `<|eot|>`.

The system message is the template's where the checkpoint has one; the others are written here, and
compared with the template when it is loaded.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

from sensorium.core.api import Constraint
from sensorium.core.errors import BadCheckpoint, CoreError
from sensorium.core.models.base import Grammar
from sensorium.core.text import atem
from sensorium.core.text.grammars import MediaMarks
from sensorium.core.text.history import Entry, Said, ToolCall, ToolResult, turn_goes_on
from sensorium.core.text.muse_channels import Marks, MuseStream
from sensorium.core.text.muse_tools import DEFAULT_EFFORT, EFFORTS, system_text
from sensorium.core.text.template import ChatTemplate, as_messages
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.core.text.tools import NO_TOOLS, ToolSet, check_name

BOS = "<|begin_of_text|>"
_MEDIA = {
    "audio": ("<|soft_audio_start|>", "<|audio|>", "<|soft_audio_end|>"),
    "image": ("<|image_start|>", "<|patch|>", "<|image_end|>"),
    "video": ("<|vid_start|>", "<|video|>", "<|vid_end|>", "<|vid_frame_separator|>"),
}
_PROBE = "U"


class MusePrompt:
    """Writes Muse's format for one checkpoint; a `core.text.prompt.Prompt`."""

    efforts = EFFORTS

    def __init__(
        self,
        tokenizer: Tokenizer,
        grammar: Grammar,
        template: ChatTemplate | None = None,
        *,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        """Raise BadCheckpoint if the tokenizer lacks a control token or the template differs."""
        self.tokenizer = tokenizer
        self.grammar = grammar
        self.default_instructions = grammar.default_instructions
        self.stop_token_ids = tuple(map(tokenizer.control, grammar.stop_tokens))
        self._bos = tokenizer.control(BOS)
        self._marks = Marks(
            start=tokenizer.control("<|start|>"),
            message=tokenizer.control("<|message|>"),
            eom=tokenizer.control("<|eom|>"),
            eot=tokenizer.control("<|eot|>"),
        )
        self._template = template
        self._now = now
        self._last_preamble: tuple[object, tuple[int, ...]] = (None, ())
        if template is not None:
            self._compare_with(template)

    def preamble(
        self, instructions: str | None, *, tools: ToolSet = NO_TOOLS, effort: str | None = None
    ) -> tuple[int, ...]:
        """Return what every prompt begins with; raises CoreError for an unknown effort."""
        effort = effort or DEFAULT_EFFORT
        if effort not in EFFORTS:
            raise CoreError(f"unknown effort {effort[:50]!r}; known are {', '.join(EFFORTS)}")
        today = self._now().strftime("%Y-%m-%d")
        key = (instructions or "", tools, effort, today)
        if self._last_preamble[0] != key:
            self._last_preamble = (key, self._preamble(instructions or "", tools, effort, today))
        return self._last_preamble[1]

    def open_message(self, role: str, *, to: str = "") -> tuple[int, ...]:
        """Return what precedes a message's body; `to` is the recipient of an assistant's."""
        header = f"{role} to={to}" if to else role
        return (self._marks.start, *self.text(header), self._marks.message)

    def text(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text; control strings in it are ordinary text."""
        return tuple(self.tokenizer.encode(text))

    def close_message(self, *, more: bool = False) -> tuple[int, ...]:
        """Return the end of a message, and of the turn unless there is `more` of it."""
        return (self._marks.eom if more else self._marks.eot,)

    def open_reply(self) -> tuple[int, ...]:
        """Return what stands before a reply: the model itself goes on with the header."""
        return (self._marks.start, *self.text("assistant"))

    def entry(self, entry: Entry, *, more: bool = False) -> tuple[int, ...]:
        """Return one message; raises BadTools for a tool's name that is none.

        `more`: the assistant's turn goes on behind it.
        """
        match entry:
            case ToolCall(name=name):
                opening = self.open_message("assistant", to=check_name(name))
                body = atem.write_call(entry)
            case ToolResult(name=name, output=output):
                opening = self.open_message(f"tool {check_name(name)}")
                body = f'<tool_output name="{name}">\n{output}\n</tool_output>'
            case Said(role="assistant", text=body, channel=channel):
                opening = self.open_message("assistant", to=channel)
            case Said(role=role, text=body):
                opening = self.open_message(role)
        return opening + self.text(body) + self.close_message(more=more)

    def conversation(
        self,
        entries: Sequence[Entry],
        *,
        instructions: str | None = None,
        tools: ToolSet = NO_TOOLS,
        effort: str | None = None,
    ) -> tuple[int, ...]:
        """Return a whole prompt; raises BadCheckpoint if the checkpoint's template fails on it."""
        ids = self.preamble(instructions, tools=tools, effort=effort) + self._body(entries)
        if self._template is None:
            return ids
        messages = self._system(instructions or "") + as_messages(entries)
        effort = effort or DEFAULT_EFFORT
        rendered = self._template.render(messages, tools=tools, effort=effort)
        # Where both write the same, these are the ids that a session's prompt has, too.
        return ids if self.tokenizer.spell(ids) == rendered.text else rendered.token_ids

    def stream(self, tools: ToolSet = NO_TOOLS) -> MuseStream:
        """Return the reader of one reply."""
        bare = self.grammar.bare_assistant
        return MuseStream(self.tokenizer, self._marks, bare_assistant=bare, tools=tools)

    def constraint(self, schema: str) -> Constraint:
        """Return what makes the final answer, and nothing before it, JSON of a schema."""
        begin = (" to=user", self._marks.message)
        return Constraint(kind="json_schema", grammar=schema, begin=begin)

    def tool_constraint(
        self,
        tools: ToolSet,
        choice: Literal["auto", "required"] | str = "auto",
        *,
        parallel: bool = True,
    ) -> Constraint | None:
        """Return None: calls are ATEM, for which there is no grammar; they are checked instead."""
        return None

    def media_marks(self, modality: str) -> MediaMarks | None:
        """Return the marks of "audio", "image" or "video"; raises BadCheckpoint if one is missing.

        A published tokenizer had reserved names in their place, so they are looked up by name.
        """
        names = _MEDIA.get(modality)
        if names is None:
            return None
        missing = [name for name in names if not self.tokenizer.has_control(name)]
        if missing:
            lacks = " and ".join(missing)
            raise BadCheckpoint(f"the tokenizer lacks {lacks}; it can't be given {modality}")
        start, placeholder, end, *rest = map(self.tokenizer.control, names)
        return MediaMarks(
            start=start, placeholder=placeholder, end=end, separator=rest[0] if rest else None
        )

    def _body(self, entries: Sequence[Entry]) -> tuple[int, ...]:
        ids: tuple[int, ...] = ()
        for place, entry in enumerate(entries):
            ids += self.entry(entry, more=turn_goes_on(entries, place))
        return ids + self.open_reply()

    def _system(self, instructions: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": instructions}] if instructions else []

    def _preamble(
        self, instructions: str, tools: ToolSet, effort: str, today: str
    ) -> tuple[int, ...]:
        if self._template is None:
            system = Said(role="system", text=system_text(instructions, tools, effort, today))
            return (self._bos, *self.entry(system))
        # What the template writes before a first message of the user.
        messages = [*self._system(instructions), {"role": "user", "content": _PROBE}]
        rendered = self._template.render(messages, tools=tools, effort=effort, reply=False)
        probe = self.entry(Said(role="user", text=_PROBE))
        ids = rendered.token_ids
        head, tail = ids[: -len(probe)], ids[-len(probe) :]
        if tail != probe or head[:2] != (self._bos, self._marks.start):
            raise BadCheckpoint(
                "its chat template is not the grammar's: it begins with "
                f"{rendered.text[:80]!r} and ends with {rendered.text[-80:]!r}"
            )
        return head

    def _compare_with(self, template: ChatTemplate) -> None:
        """Raise BadCheckpoint unless the template writes turns as this does."""
        turns: list[Entry] = [
            Said(role="user", text=_PROBE),
            Said(role="assistant", text="A"),
            Said(role="user", text="V"),
        ]
        expected = self.preamble("S") + self._body(turns)
        rendered = template.render([*self._system("S"), *as_messages(turns)], effort=DEFAULT_EFFORT)
        if rendered.token_ids != expected:
            raise BadCheckpoint(
                "its chat template is not the grammar's; it writes "
                f"{rendered.text[-200:]!r} where {self.tokenizer.spell(expected)[-200:]!r} is right"
            )
