"""Which tools a chat request gives the model, which it must call, what makes its calls valid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sensorium.core.api import Constraint
from sensorium.core.text.prompt import Prompt
from sensorium.core.text.tools import NO_TOOLS, BadTools, Tool, ToolSet, parse_tools
from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.chat_schemas import check_bounds

_CHOICES = '\'auto\', \'none\', \'required\' or {"type": "function", "function": {"name": …}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """`tools` the model is told of, and those that it may call: all of them, or the chosen one.

    `must_call`: the answer is a call; else it may be one. With `parallel` it may make several.
    """

    tools: ToolSet = NO_TOOLS
    callable_tools: ToolSet = NO_TOOLS
    must_call: bool = False
    parallel: bool = True


def tool_use(declared: Sequence[Any], choice: object, *, parallel: bool) -> ToolUse:
    """Read a request's fields; raises PeerError.

    With "none" the model isn't told of any tools, and so calls none.
    """
    check_bounds(declared, "tools")
    try:
        tools = parse_tools(declared)
    except BadTools as error:
        raise PeerError("invalid_value", f"Tools can't be used: {error}.", param="tools") from None
    match choice:
        case "none":
            return ToolUse()
        case None | "auto":
            return ToolUse(tools=tools, callable_tools=tools, parallel=parallel)
        case "required" if tools:
            return ToolUse(tools=tools, callable_tools=tools, must_call=True, parallel=parallel)
        case {"type": "function", "function": {"name": str(name)}} if tools:
            only = ToolSet([_named(tools, name)])
            return ToolUse(tools=tools, callable_tools=only, must_call=True, parallel=False)
        case "required" | {"type": "function"} if not tools:
            message = "There are no 'tools' to call; declare some, or leave 'tool_choice' out."
        case _:
            message = f"It must be {_CHOICES}."
    raise PeerError("invalid_value", message, param="tool_choice")


def _named(tools: ToolSet, name: str) -> Tool:
    try:
        return tools.named(name)
    except BadTools as error:
        message = f"It names no tool: {error}."
        raise PeerError("invalid_value", message, param="tool_choice") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constrained:
    """What an answer must look like, and the `param` of the request that says so."""

    constraint: Constraint | None = None
    param: str = ""


def constrained(prompt: Prompt, use: ToolUse, schema: str | None) -> Constrained:
    """Return what holds for an answer; raises PeerError for what this model can't be held to."""
    choice: Literal["auto", "required"] = "required" if use.must_call else "auto"
    calls = prompt.tool_constraint(use.callable_tools, choice, parallel=use.parallel)
    if use.must_call:
        if calls is None:
            message = "This model can't be made to call a tool; it must be 'auto' or 'none'."
            raise PeerError("unsupported_parameter", message, param="tool_choice")
        return Constrained(constraint=calls, param="tools")
    if schema is None:
        return Constrained() if calls is None else Constrained(constraint=calls, param="tools")
    if calls is not None:
        raise PeerError(
            "unsupported_parameter",
            "This model can't be given tools and a format at once; set 'tool_choice' to 'none' "
            "for an answer of that format, or to 'required' for a call.",
            param="response_format",
        )
    return Constrained(constraint=prompt.constraint(schema), param="response_format")
