"""The messages of a chat request → the entries of a conversation."""

import json
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from sensorium.core.text.history import Entry, Said, ToolCall, ToolResult
from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.chat_schemas import check_bounds

_ROLES = ("system", "developer", "user", "assistant", "tool")


class ContentPart(Struct):
    """One part of a message; only `text` is taken."""

    type: str
    text: str = ""


class WrittenFunction(Struct):
    """What was called; `arguments` is the JSON text of an object."""

    name: str
    arguments: str = ""


class WrittenCall(Struct):
    """A call that an earlier answer made."""

    id: str
    function: WrittenFunction
    type: str = "function"


class Message(Struct):
    """One message. `content` may be absent only where it stands for nothing."""

    role: str
    content: str | list[ContentPart] | None = None
    tool_calls: Annotated[list[WrittenCall], Meta(max_length=128)] | None = None
    tool_call_id: str | None = None

    def text(self, index: int) -> str:
        """Return the message's text; raises PeerError for content that isn't text."""
        if isinstance(self.content, str):
            return self.content
        for part in self.content or []:
            if part.type != "text":
                raise PeerError(
                    "unsupported_content",
                    f"Content of type {part.type[:50]!r} isn't taken here, only 'text'.",
                    param=f"messages[{index}].content",
                )
        return "".join(part.text for part in self.content or [])


def entries_of(messages: Sequence[Message]) -> list[Entry]:
    """Return what stands in a conversation; raises PeerError, which names the message.

    Results that follow one another are put into the order of their calls: which of two calls of
    one tool a result belongs to is told by its place alone.
    """
    entries: list[Entry] = []
    calls: list[tuple[str, str]] = []  # (id, name) of calls without a result, in order
    results: list[tuple[int, ToolResult]] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            results.append(_result(message, index, calls))
            continue
        entries += _in_order(results)
        results = []
        entries += _entries(message, index)
        # A later answer may use an id again; its own calls are what a result means then.
        made = [(call.id, call.function.name) for call in message.tool_calls or ()]
        calls = [call for call in calls if call[0] not in dict(made)] + made
        if len(dict(made)) < len(made):
            fault = "The calls of a message need different ids."
            raise PeerError("invalid_value", fault, param=f"messages[{index}].tool_calls")
    return entries + _in_order(results)


def _in_order(results: list[tuple[int, ToolResult]]) -> list[ToolResult]:
    return [result for _, result in sorted(results, key=lambda placed: placed[0])]


def _entries(message: Message, index: int) -> list[Entry]:
    text = message.text(index)
    if message.tool_calls and message.role != "assistant":
        where = f"messages[{index}].tool_calls"
        raise PeerError("invalid_value", "Only the assistant's messages make calls.", param=where)
    match message.role:
        case "system" | "developer":
            return [Said(role="system", text=text)]
        case "user":
            return [Said(role="user", text=text)]
        case "assistant":
            calls = message.tool_calls or []
            said = [Said(role="assistant", text=text)] if text or not calls else []
            return [*said, *(_call(call, index, place) for place, call in enumerate(calls))]
        case _:
            raise PeerError(
                "unsupported_role",
                f"Messages of role {message.role[:50]!r} aren't taken here; roles are "
                f"{', '.join(_ROLES)}.",
                param=f"messages[{index}].role",
            )


def _call(call: WrittenCall, index: int, place: int) -> ToolCall:
    where = f"messages[{index}].tool_calls[{place}]"
    if call.type != "function":
        raise PeerError(
            "invalid_value",
            f"Calls of type {call.type[:50]!r} aren't taken here, only 'function'.",
            param=f"{where}.type",
        )
    param = f"{where}.function.arguments"
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise PeerError("invalid_value", f"Arguments must be JSON: {error}.", param=param) from None
    if not isinstance(arguments, dict):
        raise PeerError("invalid_value", "Arguments must be a JSON object.", param=param)
    check_bounds(arguments, param, max_bytes=None)
    return ToolCall(name=call.function.name, arguments=arguments)


def _result(message: Message, index: int, calls: list[tuple[str, str]]) -> tuple[int, ToolResult]:
    """Return a result with the place of its call, which is marked as answered."""
    wanted = message.tool_call_id
    place = next((place for place, call in enumerate(calls) if call[0] == wanted), None)
    if place is None:
        said = "is missing" if wanted is None else f"is {wanted[:80]!r}"
        raise PeerError(
            "invalid_value",
            f"A message of role 'tool' needs the id of an earlier call without a result as its "
            f"'tool_call_id', which {said}.",
            param=f"messages[{index}].tool_call_id",
        )
    name = calls[place][1]
    calls[place] = ("", name)
    return place, ToolResult(name=name, output=message.text(index))
