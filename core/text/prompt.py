"""A checkpoint's prompt writer: which grammar it has, and whether its own template agrees.

What a family's prompts look like is in chatml.py and muse.py. A running prompt is built from ids,
piece by piece; a whole conversation goes through the checkpoint's template, where it has one.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from sensorium.core.api import Constraint
from sensorium.core.errors import BadCheckpoint
from sensorium.core.models.base import Grammar
from sensorium.core.text.channels import ChannelStream
from sensorium.core.text.chatml import ChatMLPrompt
from sensorium.core.text.grammars import GRAMMAR_OF_FAMILY, GRAMMARS, MediaMarks
from sensorium.core.text.history import Entry
from sensorium.core.text.muse import BOS, MusePrompt
from sensorium.core.text.sandbox import Sandbox
from sensorium.core.text.template import ChatTemplate
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.core.text.tools import NO_TOOLS, ToolSet


class Prompt(Protocol):
    """Writes the messages of one checkpoint as ids, and reads its replies.

    A prompt is `preamble(…)`, then per message `open_message(role) + text(…) + close_message()`,
    then `open_reply()`; the reply ends with one of `stop_token_ids`, to be replaced by
    `close_message()`. Text is tokenised by itself, so that a message that arrives in pieces (words
    while they are spoken) has the ids of its pieces. `efforts` are the levels of reasoning.
    """

    @property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary."""
        ...

    @property
    def grammar(self) -> Grammar:
        """Control strings, and settings of the family."""
        ...

    @property
    def default_instructions(self) -> str:
        """What a system message says if nobody says anything; "" if the preamble knows."""
        ...

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a reply."""
        ...

    @property
    def efforts(self) -> tuple[str, ...]:
        """Names of the levels of reasoning, none if there is no such choice."""
        ...

    def preamble(
        self, instructions: str | None, *, tools: ToolSet = NO_TOOLS, effort: str | None = None
    ) -> tuple[int, ...]:
        """Return what a prompt begins with; None for the default instructions."""
        ...

    def open_message(self, role: str) -> tuple[int, ...]:
        """Return what precedes a message of `role`: "system", "user" or "assistant"."""
        ...

    def text(self, text: str) -> tuple[int, ...]:
        """Return the ids of a message's text; control strings in it are ordinary text."""
        ...

    def close_message(self) -> tuple[int, ...]:
        """Return what follows a message's text and ends its turn."""
        ...

    def open_reply(self) -> tuple[int, ...]:
        """Return what stands before a reply."""
        ...

    def entry(self, entry: Entry, *, more: bool = False) -> tuple[int, ...]:
        """Return a whole message of the history; with `more` its turn goes on behind it."""
        ...

    def conversation(
        self,
        entries: Sequence[Entry],
        *,
        instructions: str | None = None,
        tools: ToolSet = NO_TOOLS,
        effort: str | None = None,
    ) -> tuple[int, ...]:
        """Return a whole prompt; raises BadCheckpoint if the template fails on it."""
        ...

    def stream(self, tools: ToolSet = NO_TOOLS) -> ChannelStream:
        """Return a reader of one reply."""
        ...

    def constraint(self, schema: str) -> Constraint:
        """Return what makes the final answer JSON of a schema (its JSON text)."""
        ...

    def tool_constraint(
        self,
        tools: ToolSet,
        choice: Literal["auto", "required"] | str = "auto",
        *,
        parallel: bool = True,
    ) -> Constraint | None:
        """Return what makes calls valid; None if nothing can.

        `choice` "auto" leaves text or calls to the model, "required" and a tool's name don't.
        """
        ...

    def media_marks(self, modality: str) -> MediaMarks | None:
        """Return what stands around a medium's rows, None where the grammar puts nothing there.

        Raises BadCheckpoint if the grammar has marks for it that the checkpoint lacks.
        """
        ...


def load_prompt(model_dir: Path, *, now: Callable[[], datetime] = datetime.now) -> Prompt:
    """Return the prompt writer of a checkpoint directory.

    The grammar is the one that config.json names under `sensorium.grammar`, else its family's, else
    ChatML where the vocabulary has its control tokens. `sensorium.bare_assistant` overrides what
    a message without recipient is. Raises BadCheckpoint if there is no grammar, or if the
    checkpoint's chat template writes messages differently. `now` tells prompts the date.
    """
    tokenizer = Tokenizer(model_dir)
    grammar = _grammar(model_dir, tokenizer)
    source = _chat_template(model_dir)
    try:
        template = None
        if source is not None:
            bos_token = BOS if grammar.frame == "muse" else ""
            template = ChatTemplate(Sandbox(source, now=now), tokenizer, bos_token=bos_token)
        if grammar.frame == "muse":
            return MusePrompt(tokenizer, grammar, template, now=now)
        grammar = grammar if template is None else _fitted(grammar, template)
        return ChatMLPrompt(tokenizer, grammar, template)
    except BadCheckpoint as error:
        raise BadCheckpoint(f"{model_dir}: {error}") from error


def _grammar(model_dir: Path, tokenizer: Tokenizer) -> Grammar:
    config = _read_json(model_dir / "config.json")
    ours = config.get("sensorium", {})
    name = ours.get("grammar") or GRAMMAR_OF_FAMILY.get(config.get("model_type", ""))
    if name is None and tokenizer.has_control("<|im_start|>"):
        name = "chatml"
    if not isinstance(name, str) or name not in GRAMMARS:
        raise BadCheckpoint(
            f"{model_dir}: no known prompt grammar; config.json may name one of "
            f'{", ".join(GRAMMARS)} as "sensorium": {{"grammar": …}}'
        )
    bare = ours.get("bare_assistant", GRAMMARS[name].bare_assistant)
    if bare not in ("reasoning", "answer"):
        raise BadCheckpoint(
            f"{model_dir}: config.json has sensorium.bare_assistant {bare!r}; "
            "it is 'reasoning' or 'answer'"
        )
    return replace(GRAMMARS[name], bare_assistant=bare)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadCheckpoint(f"{path} can't be read: {error}") from error
    if not isinstance(content, dict):
        raise BadCheckpoint(f"{path} is no JSON object")
    return content


def _chat_template(model_dir: Path) -> str | None:
    """Return the template's source, from its own file or from tokenizer_config.json."""
    path = model_dir / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    if (model_dir / "tokenizer_config.json").is_file():
        template = _read_json(model_dir / "tokenizer_config.json").get("chat_template")
        return template if isinstance(template, str) else None
    return None


def _fitted(grammar: Grammar, template: ChatTemplate) -> Grammar:
    """Return ChatML with the template's default instructions, once both write the same."""
    turns = [("system", "S"), ("user", "U"), ("assistant", "A"), ("user", "V")]
    if _rendered(template, turns) != _spelled(grammar, turns):
        raise BadCheckpoint("its chat template is not the grammar's; can't prompt it")
    bare = _rendered(template, turns[1:])
    opening = grammar.message_open.format("system")
    rest = grammar.message_close + _spelled(grammar, turns[1:])
    if bare.startswith(opening) and bare.endswith(rest):
        return replace(grammar, default_instructions=bare[len(opening) : -len(rest)])
    return grammar


def _spelled(grammar: Grammar, turns: list[tuple[str, str]]) -> str:
    messages = [
        grammar.message_open.format(role) + text + grammar.message_close for role, text in turns
    ]
    return "".join(messages) + grammar.message_open.format("assistant")


def _rendered(template: ChatTemplate, turns: list[tuple[str, str]]) -> str:
    return template.render([{"role": role, "content": text} for role, text in turns]).text
