"""Tool calls of ChatML models: JSON between `<tool_call>` marks, in the text of an answer.

The form is the one that Hermes models and SmolLM2 were trained with. All marks are ordinary text.
The grammars are Lark in llguidance's dialect (`%json`, `[lazy]`, `&`, `~`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sensorium.core.api import Constraint
from sensorium.core.text.history import ToolCall, ToolResult
from sensorium.core.text.tools import CallOutcome, CallRefused, Tool, ToolSet

CALL, CALL_END = "<tool_call>", "</tool_call>"
MAX_CALLS = 8
"""How many calls one answer may make; small models would go on for ever."""


def section(tools: ToolSet) -> str:
    """Return what the system message says of the tools."""
    declared = "\n".join(_json(tool.declaration()) for tool in tools)
    return (
        "# Tools\n\nThese functions may be called, each given by its JSON schema:\n"
        f"<tools>\n{declared}\n</tools>\n\n"
        "A call names a function and its arguments, as JSON between marks:\n"
        f'{CALL}\n{{"name": "the function", "arguments": {{"parameter": "value"}}}}\n{CALL_END}'
    )


def write_call(call: ToolCall) -> str:
    """Return the text of a call."""
    body = {"name": call.name, "arguments": dict(call.arguments)}
    return f"{CALL}\n{_json(body)}\n{CALL_END}"


def write_result(result: ToolResult) -> str:
    """Return the text of a result."""
    body = {"name": result.name, "content": result.output}
    return f"<tool_response>\n{_json(body)}\n</tool_response>"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- constraints --------------------------------------------------------------------------------


def must_call(tools: Sequence[Tool], *, parallel: bool = True) -> Constraint:
    """Return the grammar of an answer that is nothing but calls of `tools`: one at least."""
    return _lark(f'start: "{CALL}" call', tools, parallel)


def may_call(tools: Sequence[Tool], *, parallel: bool = True) -> Constraint:
    """Return the grammar of free text that may end with calls; every mark begins a valid one."""
    start = (
        "start: FREE | opened call\n"
        f"FREE: /(.|\\n)+/ & ~/(.|\\n)*{CALL}(.|\\n)*/\n"
        f"opened[lazy]: /(.|\\n)*{CALL}/"
    )
    return _lark(start, tools, parallel)


def _lark(start: str, tools: Sequence[Tool], parallel: bool) -> Constraint:
    more = f' ("\\n{CALL}" body){{0,{MAX_CALLS - 1}}}' if parallel else ""
    rules = [start, f"call: body{more}"]
    rules.append(
        f'body: "\\n" ({" | ".join(f"tool_{i}" for i in range(len(tools)))}) "\\n{CALL_END}"'
    )
    rules += [f"tool_{i}: %json {_json(_call_schema(tool))}" for i, tool in enumerate(tools)]
    return Constraint(kind="lark", grammar="\n".join(rules) + "\n")


def _call_schema(tool: Tool) -> dict[str, Any]:
    """Return the schema of a call's JSON; spaces as `json.dumps` writes them, and no others."""
    parameters = dict(tool.parameters)
    # References are paths from the root, which is the call's schema now.
    definitions: dict[str, Any] = {
        k: parameters.pop(k) for k in ("$defs", "definitions") if k in parameters
    }
    return {
        "x-guidance": {
            "whitespace_flexible": False,
            "item_separator": ", ",
            "key_separator": ": ",
        },
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": _closed(parameters)},
        "required": ["name", "arguments"],
        "additionalProperties": False,
        **definitions,
    }


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's schema that takes no undeclared properties unless it says so itself."""
    return {"additionalProperties": False, "properties": {}, **schema}


# --- reading ------------------------------------------------------------------------------------


class CallSplitter:
    """Parts the text of an answer into what is said and what is called, at any split of it.

    `push` and `finish` return texts and the outcomes of calls, in order. A mark is held back until
    it is decided. White space between two calls and behind them is dropped.
    """

    def __init__(self, tools: ToolSet) -> None:
        self._tools = tools
        self._held = ""
        self._in_call = False
        self._after_call = False
        self._searched = 0

    def push(self, text: str) -> list[str | CallOutcome]:
        """Return what is decided now."""
        self._held += text
        found: list[str | CallOutcome] = []
        while (piece := self._next()) is not None:
            if piece != "":
                found.append(piece)
        return found

    def finish(self, *, cut: bool) -> list[str | CallOutcome]:
        """Return what was held back; a call that has no end is refused."""
        held, self._held = self._held, ""
        if self._in_call:
            reason = "the answer ended inside it" if cut else "it has no end"
            return [_refused("cut" if cut else "malformed", reason)]
        if cut and CALL.startswith(held):  # half a mark is no text
            return []
        text = held.lstrip() if self._after_call else held
        return [text] if text else []

    def _next(self) -> str | CallOutcome | None:
        """Take one text or call off what is held; None if nothing is decided."""
        if self._in_call:
            return self._next_call()
        if self._after_call:
            self._held = self._held.lstrip()
        place = self._held.find(CALL)
        if place >= 0:
            text, self._held = self._held[:place], self._held[place + len(CALL) :]
            self._in_call, self._searched = True, 0
            return text
        keep = next(n for n in range(len(CALL), -1, -1) if self._held.endswith(CALL[:n]))
        text, self._held = (
            self._held[: len(self._held) - keep],
            self._held[len(self._held) - keep :],
        )
        self._after_call = self._after_call and not text
        return text or None

    def _next_call(self) -> CallOutcome | None:
        """Return the call up to the first end mark that doesn't stand inside a JSON text."""
        while (end := self._held.find(CALL_END, self._searched)) >= 0:
            if not _ends_in_text(self._held[:end]):
                body, self._held = self._held[:end], self._held[end + len(CALL_END) :]
                self._in_call, self._after_call = False, True
                return self._checked(body)
            self._searched = end + 1
        self._searched = max(self._searched, len(self._held) - len(CALL_END))
        return None

    def _checked(self, body: str) -> CallOutcome:
        try:
            call = json.loads(body)
        except (ValueError, RecursionError):
            return _refused("malformed", "it is no JSON")
        if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
            return _refused("malformed", "it must be an object of 'name' and 'arguments'")
        name, arguments = call["name"], call["arguments"]
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return _refused("malformed", "'name' must be a text and 'arguments' an object")
        return self._tools.check(name, arguments)


def _refused(reason: Literal["cut", "malformed"], fault: str) -> CallRefused:
    return CallRefused(name="", reason=reason, message=f"A call was dropped: {fault}.")


def _ends_in_text(body: str) -> bool:
    """Tell whether JSON breaks off inside a text."""
    inside = escaped = False
    for character in body:
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = inside
        elif character == '"':
            inside = not inside
    return inside
