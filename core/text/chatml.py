"""ChatML prompts: a message is its role, its text, and a control token on either side.

There is one channel and no effort; tools are told of in the system message and called in the text.
"""

import re
from collections.abc import Sequence
from typing import Literal

from sensorium.core.api import Constraint
from sensorium.core.errors import BadCheckpoint
from sensorium.core.models.base import Grammar
from sensorium.core.text import chatml_tools
from sensorium.core.text.channels import TextStream
from sensorium.core.text.grammars import MediaMarks
from sensorium.core.text.history import Entry, Said, ToolCall, ToolResult
from sensorium.core.text.template import ChatTemplate
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.core.text.tools import NO_TOOLS, ToolSet, check_name


class ChatMLPrompt:
    """Writes ChatML for one checkpoint; a `core.text.prompt.Prompt`."""

    efforts: tuple[str, ...] = ()

    def __init__(
        self, tokenizer: Tokenizer, grammar: Grammar, template: ChatTemplate | None = None
    ) -> None:
        """Raise BadCheckpoint if the tokenizer lacks the grammar's control tokens."""
        self.tokenizer = tokenizer
        self.grammar = grammar
        self.default_instructions = grammar.default_instructions
        self.stop_token_ids = tuple(
            tokenizer.control(token)
            for token in grammar.stop_tokens
            if tokenizer.has_control(token)
        )
        if not self.stop_token_ids:
            raise BadCheckpoint(f"the tokenizer has none of {', '.join(grammar.stop_tokens)}")
        for token in re.findall(r"<\|\w+\|>", grammar.message_open + grammar.message_close):
            tokenizer.control(token)
        self._template = template
        self._close = tuple(tokenizer.encode_markup(grammar.message_close))
        self._open: dict[str, tuple[int, ...]] = {}

    def preamble(
        self, instructions: str | None, *, tools: ToolSet = NO_TOOLS, effort: str | None = None
    ) -> tuple[int, ...]:
        """Return the system message. Without instructions and tools there may be none."""
        text = self._system_text(instructions, tools)
        return () if text is None else self.entry(Said(role="system", text=text))

    def open_message(self, role: str) -> tuple[int, ...]:
        """Return what precedes a message of `role`: "system", "user" or "assistant"."""
        if role not in self._open:
            markup = self.grammar.message_open.format(role)
            self._open[role] = tuple(self.tokenizer.encode_markup(markup))
        return self._open[role]

    def text(self, text: str) -> tuple[int, ...]:
        """Return the ids of a message's text; control strings in it are ordinary text."""
        return tuple(self.tokenizer.encode(text))

    def close_message(self) -> tuple[int, ...]:
        """Return what follows a message's text."""
        return self._close

    def open_reply(self) -> tuple[int, ...]:
        """Return what stands before the model's answer."""
        return self.open_message("assistant")

    def entry(self, entry: Entry, *, more: bool = False) -> tuple[int, ...]:
        """Return one message, none for reasoning; `more` changes nothing here."""
        ids: tuple[int, ...] = ()
        for role, text in _turns([entry]):
            ids += self.open_message(role) + self.text(text) + self.close_message()
        return ids

    def conversation(
        self,
        entries: Sequence[Entry],
        *,
        instructions: str | None = None,
        tools: ToolSet = NO_TOOLS,
        effort: str | None = None,
    ) -> tuple[int, ...]:
        """Return a whole prompt; raises BadCheckpoint if the checkpoint's template fails on it."""
        ids = list(self.preamble(instructions, tools=tools))
        turns = _turns(entries)
        for role, text in turns:
            ids += self.open_message(role) + self.text(text) + self.close_message()
        ids += self.open_reply()
        if self._template is None:
            return tuple(ids)
        system = self._system_text(instructions, tools)
        if system is not None:
            turns.insert(0, ("system", system))
        rendered = self._template.render([{"role": r, "content": text} for r, text in turns])
        # Where both write the same, these are the ids that a session's prompt has, too.
        return tuple(ids) if self.tokenizer.spell(ids) == rendered.text else rendered.token_ids

    def stream(self, tools: ToolSet = NO_TOOLS) -> TextStream:
        """Return the reader of one answer."""
        return TextStream(self.tokenizer, tools)

    def constraint(self, schema: str) -> Constraint:
        """Return what makes an answer JSON of a schema."""
        return Constraint(kind="json_schema", grammar=schema)

    def tool_constraint(
        self,
        tools: ToolSet,
        choice: Literal["auto", "required"] | str = "auto",
        *,
        parallel: bool = True,
    ) -> Constraint | None:
        """Return what makes the calls of an answer valid, or a tool's name makes it that call."""
        if not tools:
            return None
        if choice == "auto":
            return chatml_tools.may_call(list(tools), parallel=parallel)
        if choice == "required":
            return chatml_tools.must_call(list(tools), parallel=parallel)
        return chatml_tools.must_call([tools.named(choice)], parallel=False)

    def media_marks(self, modality: str) -> MediaMarks | None:
        """Return None: ChatML knows words only, so rows stand in a message as they are."""
        return None

    def _system_text(self, instructions: str | None, tools: ToolSet) -> str | None:
        text = instructions if instructions is not None else self.default_instructions or None
        if not tools:
            return text
        return "\n\n".join(filter(None, (text, chatml_tools.section(tools))))


def _spoken(entry: Entry) -> tuple[str, str]:
    """Return role and text of an entry; raises BadTools for a name that is none."""
    if isinstance(entry, ToolCall):
        check_name(entry.name)
        return "assistant", chatml_tools.write_call(entry)
    if isinstance(entry, ToolResult):
        check_name(entry.name)
        return "tool", chatml_tools.write_result(entry)
    return entry.role, entry.text


def _turns(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Return roles and texts. Calls stand in the message before them; reasoning in none."""
    turns: list[tuple[str, str]] = []
    for entry in entries:
        if isinstance(entry, Said) and entry.channel != "user":
            continue
        role, text = _spoken(entry)
        if isinstance(entry, ToolCall) and turns and turns[-1][0] == role:
            turns[-1] = (role, f"{turns[-1][1]}\n{text}")
        else:
            turns.append((role, text))
    return turns
