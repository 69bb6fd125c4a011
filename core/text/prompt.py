"""Messages to token ids, as the checkpoint's own chat template would write them.

The template itself is only asked once, when a checkpoint is loaded: for its default instructions,
and whether it agrees with our grammar. A running prompt is built piece by piece from ids.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sensorium.core.errors import BadCheckpoint
from sensorium.core.models.base import Grammar
from sensorium.core.text.grammars import GRAMMARS
from sensorium.core.text.tokenizer import Tokenizer


class Prompt:
    """Writes the messages of one checkpoint as ids. Immutable.

    A message is `open_message(role) + text(…) + close_message()`; the model's answer begins after
    `open_message("assistant")` and ends with one of `stop_token_ids`, to be replaced by
    `close_message()`. Text is tokenised by itself, so that a message that arrives in pieces (words
    while they are spoken) has the ids of its pieces.
    """

    def __init__(self, tokenizer: Tokenizer, grammar: Grammar) -> None:
        """Raise BadCheckpoint if the tokenizer lacks the grammar's control tokens."""
        self.tokenizer = tokenizer
        self.grammar = grammar
        self.default_instructions = grammar.default_instructions
        self.stop_token_ids = tuple(
            tokenizer.control(token)
            for token in grammar.stop_tokens
            if tokenizer.has_control(token)
        )
        self._close = self._markup(grammar.message_close)
        self._open: dict[str, tuple[int, ...]] = {}
        if not self.stop_token_ids:
            raise BadCheckpoint(f"the tokenizer has none of {', '.join(grammar.stop_tokens)}")

    def open_message(self, role: str) -> tuple[int, ...]:
        """Return what precedes a message of `role`: "system", "user" or "assistant"."""
        if role not in self._open:
            self._open[role] = self._markup(self.grammar.message_open.format(role))
        return self._open[role]

    def text(self, text: str) -> tuple[int, ...]:
        """Return the ids of a message's text; control strings in it are ordinary text."""
        return tuple(self.tokenizer.encode(text))

    def close_message(self) -> tuple[int, ...]:
        """Return what follows a message's text."""
        return self._close

    def _markup(self, markup: str) -> tuple[int, ...]:
        ids: list[int] = []
        for piece in re.split(r"(<\|\w+\|>)", markup):
            if re.fullmatch(r"<\|\w+\|>", piece):
                ids.append(self.tokenizer.control(piece))
            else:
                ids.extend(self.tokenizer.encode(piece))
        return tuple(ids)


def load_prompt(model_dir: Path) -> Prompt:
    """Return the prompt writer of a checkpoint directory.

    The grammar is the one that config.json names under `sensorium.grammar`, else ChatML where the
    vocabulary has its control tokens. Raises BadCheckpoint if there is none, or if the checkpoint's
    chat template writes messages differently.
    """
    tokenizer = Tokenizer(model_dir)
    config = _read_json(model_dir / "config.json")
    name = config.get("sensorium", {}).get("grammar")
    if name is None and tokenizer.has_control("<|im_start|>"):
        name = "chatml"
    if name not in GRAMMARS:
        raise BadCheckpoint(
            f"{model_dir}: no known prompt grammar; config.json may name one of "
            f'{", ".join(GRAMMARS)} as "sensorium": {{"grammar": …}}'
        )
    template = _chat_template(model_dir)
    grammar = GRAMMARS[name] if template is None else _fitted(GRAMMARS[name], template, model_dir)
    return Prompt(tokenizer, grammar)


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


def _fitted(grammar: Grammar, template: str, model_dir: Path) -> Grammar:
    """Return `grammar` with the template's default instructions, once both write the same."""
    turns = [("system", "S"), ("user", "U"), ("assistant", "A"), ("user", "V")]
    if _rendered(template, turns, model_dir) != _spelled(grammar, turns):
        raise BadCheckpoint(f"{model_dir}: its chat template is not the grammar's; can't prompt it")
    bare = _rendered(template, turns[1:], model_dir)
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


def _rendered(template: str, turns: list[tuple[str, str]], model_dir: Path) -> str:
    """Run a template that came with weights: sandboxed, with the settings transformers uses."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    messages = [{"role": role, "content": text} for role, text in turns]
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, bos_token="", eos_token=""
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise BadCheckpoint(f"{model_dir}: its chat template fails: {error}") from error
