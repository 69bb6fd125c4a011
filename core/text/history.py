"""What stands in a conversation, as a prompt writer is told of it: plain values, no ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A text. `channel` matters for the assistant's: final answer, reasoning or progress note."""

    role: Role
    text: str
    channel: Literal["user", "self", "commentary"] = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the assistant makes; `arguments` is a JSON object."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool returned, as text."""

    name: str
    output: str


Entry = Said | ToolCall | ToolResult


def is_assistants(entry: Entry) -> bool:
    """Tell whether the assistant wrote an entry."""
    return isinstance(entry, ToolCall) or (isinstance(entry, Said) and entry.role == "assistant")


def turn_goes_on(entries: Sequence[Entry], place: int) -> bool:
    """Tell whether the assistant's turn goes on after `entries[place]`; an answer ends it."""
    entry = entries[place]
    is_answer = isinstance(entry, Said) and entry.channel == "user"
    following = entries[place + 1 : place + 2]
    return is_assistants(entry) and not is_answer and any(map(is_assistants, following))
