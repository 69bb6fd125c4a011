"""The tools a model may call: their declarations, their names, and what makes a call valid."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sensorium.core.errors import CoreError
from sensorium.core.text.history import ToolCall

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,3}")
_RESERVED = ("self", "user", "commentary", "developer", "assistant", "system", "tool", "unknown")
"""What else may stand where a tool's name does: recipients, roles, and our word for neither."""


class BadTools(CoreError):
    """A declaration of tools can't be used; the message names the tool and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function. `name` is its full one (`ns.function`), `parameters` a JSON schema's object."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def namespace(self) -> str:
        """The part before the first dot; a bare name is a namespace of its own."""
        return self.name.partition(".")[0]

    def declaration(self) -> dict[str, Any]:
        """Return the function as OpenAI's chat API declares it."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMade:
    """The model called a registered tool with all arguments that it requires."""

    call: ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRefused:
    """The model wrote a call that won't be made. `name` as far as it was written.

    `cut`: the answer ended inside it. `malformed`: the markup is wrong. `unknown_tool`: nobody
    registered it. `bad_arguments`: one is missing, or there are no such arguments.
    """

    name: str
    reason: Literal["cut", "malformed", "unknown_tool", "bad_arguments"]
    message: str


CallOutcome = CallMade | CallRefused


class ToolSet:
    """The tools of one conversation. Immutable."""

    def __init__(self, tools: Sequence[Tool], namespaces: Mapping[str, str] | None = None) -> None:
        """Take tools and the descriptions of their namespaces; raises BadTools."""
        if len(tools) > MAX_TOOLS:
            raise BadTools(f"{len(tools)} tools are declared; at most {MAX_TOOLS} can be")
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            names = [tool.name for tool in tools]
            twice = next(name for name in names if names.count(name) > 1)
            raise BadTools(f"the tool {twice!r} is declared twice; names must differ")
        self.namespaces = {tool.namespace: "" for tool in tools} | dict(namespaces or {})

    def __bool__(self) -> bool:
        return bool(self.tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools.values())

    def find(self, name: str) -> Tool | None:
        """Return the tool that a model means by `name`.

        Models double a bare name (`clock.clock` for `clock`): a doubled name is collapsed if the
        result is registered. Nothing else is guessed.
        """
        if name in self.tools:
            return self.tools[name]
        parts = name.split(".")
        half = len(parts) // 2
        if parts[:half] == parts[half:]:
            return self.tools.get(".".join(parts[:half]))
        if parts[:1] == parts[1:2]:
            return self.tools.get(".".join(parts[1:]))
        return None

    def named(self, name: str) -> Tool:
        """Return the tool of exactly this name; raises BadTools."""
        if name not in self.tools:
            known = ", ".join(self.tools) or "none"
            raise BadTools(f"there is no tool {name[:80]!r}; declared are {known}")
        return self.tools[name]

    def check(self, name: str, arguments: Mapping[str, Any]) -> CallOutcome:
        """Return the call of a tool, or why it can't be made."""
        tool = self.find(name)
        if tool is None:
            known = ", ".join(self.tools) or "none"
            message = f"There is no tool {name!r}; registered: {known}."
            return CallRefused(name=name, reason="unknown_tool", message=message)
        missing = [key for key in tool.parameters.get("required", ()) if key not in arguments]
        if missing:
            message = f"The call of {tool.name!r} lacks {', '.join(missing)}."
            return CallRefused(name=tool.name, reason="bad_arguments", message=message)
        if tool.parameters.get("additionalProperties") is False:
            foreign = [key for key in arguments if key not in tool.parameters.get("properties", ())]
            if foreign:
                message = f"{tool.name!r} has no parameter {', '.join(foreign)}."
                return CallRefused(name=tool.name, reason="bad_arguments", message=message)
        return CallMade(call=ToolCall(name=tool.name, arguments=arguments))


NO_TOOLS = ToolSet(())


def parse_tools(declarations: Sequence[Mapping[str, Any]]) -> ToolSet:
    """Read OpenAI's declarations, flat or under `function`, and Spark's namespaces.

    A namespace is `{"type": "namespace", "name", "description", "tools": […]}`; its functions are
    named inside it. Raises BadTools.
    """
    tools: list[Tool] = []
    namespaces: dict[str, str] = {}
    for declared in declarations:
        if not isinstance(declared, Mapping):
            raise BadTools(f"a tool is an object, not {json.dumps(declared)[:50]}")
        if declared.get("type") == "namespace":
            name = _name(declared)
            namespaces[name] = _text(declared, "description", name)
            inner = declared.get("tools", ())
            if not isinstance(inner, Sequence) or isinstance(inner, str):
                raise BadTools(f"the namespace {name!r}: 'tools' must be a list of functions")
            tools += [_function(function, f"{name}.") for function in inner]
        else:
            tools.append(_function(declared, ""))
    return ToolSet(tools, namespaces)


def _function(declared: Mapping[str, Any], prefix: str) -> Tool:
    if not isinstance(declared, Mapping) or declared.get("type") != "function":
        kind = declared.get("type") if isinstance(declared, Mapping) else declared
        raise BadTools(f"a tool of type {kind!r}; known are 'function' and 'namespace'")
    function = declared.get("function", declared)
    if not isinstance(function, Mapping):
        raise BadTools("'function' of a tool must be an object")
    name = prefix + _name(function)
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise BadTools(f"{name!r}: 'parameters' must be a JSON schema of type object")
    for key, kind in (("properties", dict), ("required", list)):
        if not isinstance(parameters.get(key, kind()), kind):
            raise BadTools(f"{name!r}: 'parameters.{key}' must be a {kind.__name__}")
    if not all(isinstance(key, str) for key in parameters.get("required", ())):
        raise BadTools(f"{name!r}: 'parameters.required' must name parameters")
    return Tool(
        name=name,
        description=_text(function, "description", name),
        parameters={"type": "object", **parameters},
    )


def check_name(name: object) -> str:
    """Return a tool's name, which goes into prompts as it is; raises BadTools for any other."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadTools(
            f"{str(name)[:80]!r} is no tool name; one has letters, digits, _ and -, at most 64, "
            "and may have namespaces before it, each with a dot"
        )
    if name.partition(".")[0] in _RESERVED:
        raise BadTools(f"{name!r} can't name a tool; reserved are {', '.join(_RESERVED)}")
    return name


def _name(declared: Mapping[str, Any]) -> str:
    return check_name(declared.get("name"))


def _text(declared: Mapping[str, Any], key: str, name: str) -> str:
    text = declared.get(key) or ""
    if not isinstance(text, str):
        raise BadTools(f"{name!r}: {key!r} must be a text")
    return text
