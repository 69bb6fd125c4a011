"""A conversation through the checkpoint's own chat template, safe from what is quoted in it.

A template writes control strings and texts of users into one string. So that only its own become
control tokens, a random mark parts those in texts before it runs, and is erased from what it wrote.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sensorium.core.text.history import (
    Entry,
    Said,
    ToolCall,
    ToolResult,
    is_assistants,
    turn_goes_on,
)
from sensorium.core.text.sandbox import Sandbox
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.core.text.tools import NO_TOOLS, ToolSet

EFFORT_NAMES = ("reasoning_effort", "reasoning_strength")
"""Families differ in the name of the variable; one that a template doesn't read harms nothing."""


class Rendered:
    """What a template wrote."""

    def __init__(self, marked: str, mark: str, tokenizer: Tokenizer) -> None:
        self._marked = marked
        self._mark = mark
        self._tokenizer = tokenizer

    @property
    def text(self) -> str:
        """All of it; texts of users and control strings look the same."""
        return self._marked.replace(self._mark, "")

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Its ids: only what the template itself wrote is a control token."""
        return tuple(self._tokenizer.encode_markup(self._marked, erase=self._mark))


class ChatTemplate:
    """The template of one checkpoint over its tokenizer. For one thread at a time."""

    def __init__(self, sandbox: Sandbox, tokenizer: Tokenizer, *, bos_token: str = "") -> None:
        self._sandbox = sandbox
        self._tokenizer = tokenizer
        self._bos_token = bos_token

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: ToolSet = NO_TOOLS,
        effort: str | None = None,
        reply: bool = True,
    ) -> Rendered:
        """Write `messages`, and with `reply` the beginning of an answer; raises BadCheckpoint."""
        mark = secrets.token_hex(8)
        variables: dict[str, Any] = {
            "messages": self._guarded(messages, mark),
            "add_generation_prompt": reply,
            "bos_token": self._bos_token,
            "eos_token": "",
        }
        if tools:
            variables["tools"] = self._guarded([tool.declaration() for tool in tools], mark)
        if effort is not None:
            variables |= dict.fromkeys(EFFORT_NAMES, effort)
        return Rendered(self._sandbox.render(variables), mark, self._tokenizer)

    def _guarded(self, value: Any, mark: str) -> Any:
        """Return a JSON value whose texts make no control tokens."""
        if isinstance(value, str):
            return self._tokenizer.disarm(value, mark)
        if isinstance(value, Mapping):
            return {self._guarded(k, mark): self._guarded(v, mark) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._guarded(inner, mark) for inner in value]
        return value


def as_messages(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return a history in the form that chat templates read: one message per assistant's turn."""
    messages: list[dict[str, Any]] = []
    open_calls: list[tuple[str, str]] = []  # (name, id) of calls without a result
    for place, entry in enumerate(entries):
        if is_assistants(entry):
            if place == 0 or not turn_goes_on(entries, place - 1):
                messages.append({"role": "assistant", "content": ""})
            _add(messages[-1], entry, f"call_{place}")
            if isinstance(entry, ToolCall):
                open_calls.append((entry.name, f"call_{place}"))
        elif isinstance(entry, ToolResult):
            call = next((call for call in open_calls if call[0] == entry.name), (entry.name, ""))
            open_calls = [other for other in open_calls if other != call]
            messages.append(
                {
                    "role": "tool",
                    "name": entry.name,
                    "tool_call_id": call[1],
                    "content": entry.output,
                }
            )
        elif isinstance(entry, Said):
            messages.append({"role": entry.role, "content": entry.text})
    return messages


_FIELDS = {"user": "content", "self": "reasoning_content", "commentary": "commentary"}


def _add(turn: dict[str, Any], entry: Entry, call_id: str) -> None:
    if isinstance(entry, ToolCall):
        function = {"name": entry.name, "arguments": dict(entry.arguments)}
        call = {"type": "function", "id": call_id, "function": function}
        turn.setdefault("tool_calls", []).append(call)
    elif isinstance(entry, Said):
        turn[_FIELDS[entry.channel]] = entry.text
