"""ATEM, the markup of Muse's tool calls: written for the history, read from a message's body.

It looks like XML and isn't: values stand as they are, with nothing escaped and all spaces kept, and
end at the first closing mark. Its marks are ordinary text, no control tokens.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from sensorium.core.text.history import ToolCall
from sensorium.core.text.tools import CallOutcome, CallRefused, ToolSet

MAX_BODY_CHARS = 1 << 18
"""No call is longer; a model that goes on and on is stopped from filling the memory."""

_BLOCK, _BLOCK_END = "<atem:function_calls>", "</atem:function_calls>"
_INVOKE, _INVOKE_END = '<atem:invoke name="', "</atem:invoke>"
_PARAMETER, _PARAMETER_END = '<atem:parameter name="', "</atem:parameter>"
_UNFINISHED = re.compile(rf"\s*{re.escape(_INVOKE)}([\w.\-]+)\Z")
_NAME = re.compile(r'([^"<>\n]{1,256})">')


def write_call(call: ToolCall) -> str:
    """Return the body of a message that makes a call."""
    lines = [_BLOCK, f'{_INVOKE}{call.name}">']
    for key, value in call.arguments.items():
        lines.append(f'{_PARAMETER}{key}">{_written(value)}{_PARAMETER_END}')
    return "\n".join([*lines, _INVOKE_END, _BLOCK_END])


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class CallReader:
    """Reads the body of one message to a tool as it comes; the calls are known at its end.

    The whole body must be one block of calls: if anything else stands in it, or any of its calls
    can't be made, none of them is.
    """

    def __init__(self, tools: ToolSet, recipient: str) -> None:
        self._tools = tools
        self._name = recipient
        self._text = ""
        self._place = 0  # what was read of `_text`
        self._searched = 0  # no value ends before this
        self._wanted: tuple[str, ...] = (_BLOCK,)
        self._calls: list[tuple[str, dict[str, str]]] = []
        self._key = ""
        self._fault = ""

    @property
    def is_broken(self) -> bool:
        """Whether no call can come of this body any more."""
        return bool(self._fault)

    def push(self, text: str) -> None:
        """Read on; text of any split."""
        if self._fault:
            return
        self._text += text
        try:
            while self._step():
                pass
            if len(self._text) > MAX_BODY_CHARS:
                self._fail(f"it has more than {MAX_BODY_CHARS} characters")
        except _Malformed as fault:
            self._fault = str(fault)

    def finish(self, *, cut: bool, broken: bool = False) -> list[CallOutcome]:
        """Return the calls of the body, or the one reason why there are none.

        `cut`: the reply ended inside the body; `broken`: a control token stands in it.
        """
        if unfinished := _UNFINISHED.match(self._text, self._place):
            self._name = unfinished[1]
        if broken:
            self._fault = self._fault or "a control token stands in it"
        if self._fault:
            return [self._refused("malformed", self._fault)]
        if self._wanted or self._text[self._place :].strip():
            message = "the answer ended inside it" if cut else "its end is missing"
            return [self._refused("cut" if cut else "malformed", message)]
        outcomes = [self._checked(name, written) for name, written in self._calls]
        refused = [outcome for outcome in outcomes if isinstance(outcome, CallRefused)]
        return [*refused[:1]] or outcomes

    def _checked(self, name: str, written: Mapping[str, str]) -> CallOutcome:
        tool = self._tools.find(name)
        schema = tool.parameters if tool else {}
        typed = {key: _typed(value, schema, key) for key, value in written.items()}
        return self._tools.check(name, typed)

    def _refused(self, reason: Literal["cut", "malformed"], fault: str) -> CallRefused:
        message = f"The call of {self._name!r} was dropped: {fault}."
        return CallRefused(name=self._name, reason=reason, message=message)

    def _step(self) -> bool:
        """Read one mark or value; False if more text is needed or there is nothing left to read."""
        if self._key:
            return self._read_value()
        rest = self._text[self._place :].lstrip()
        if not rest:
            return False
        mark = next((mark for mark in self._wanted if rest.startswith(mark)), None)
        if mark is None:
            if any(wanted.startswith(rest) for wanted in self._wanted):
                return False
            expected = " or ".join(self._wanted) or "nothing more"
            self._fail(f"something else stands where {expected} should")
        start = len(self._text) - len(rest) + len(mark)
        if mark.endswith('"'):
            return self._read_name(mark, start)
        self._place = start
        self._wanted = {
            _BLOCK: (_INVOKE,),
            _INVOKE_END: (_INVOKE, _BLOCK_END),
            _BLOCK_END: (),
        }[mark]
        return True

    def _read_name(self, mark: str, start: int) -> bool:
        found = _NAME.match(self._text, start)
        if found is None:
            rest = self._text[start : start + 260]
            if '">' in rest or len(rest) > 258 or re.search(r"[<>\n]", rest):
                self._fail(f"what follows {mark} is no name")
            return False
        self._place = found.end()
        if mark == _INVOKE:
            self._name = found[1]
            self._calls.append((found[1], {}))
        else:
            self._key = found[1]
            if self._key in self._calls[-1][1]:
                self._fail(f"its parameter {self._key!r} is given twice")
        self._wanted = (_PARAMETER, _INVOKE_END)
        return True

    def _read_value(self) -> bool:
        end = self._text.find(_PARAMETER_END, max(self._place, self._searched))
        if end < 0:
            self._searched = len(self._text) - len(_PARAMETER_END)
            return False
        value = self._text[self._place : end]
        if _PARAMETER in value or _INVOKE in value:
            self._fail(f"the value of {self._key!r} has no end")
        self._calls[-1][1][self._key] = value
        self._key = ""
        self._place = end + len(_PARAMETER_END)
        return True

    def _fail(self, fault: str) -> NoReturn:
        raise _Malformed(fault)


class _Malformed(Exception):
    """The body isn't a block of calls; says why."""


def _typed(written: str, schema: Mapping[str, Any], key: str) -> object:
    """Return a value as its schema types it: a declared text stays text, else JSON, else text."""
    properties = schema.get("properties", {})
    wanted = _resolved(properties.get(key, {}), schema)
    options = [wanted, *(_resolved(option, schema) for option in _list(wanted.get("anyOf")))]
    kinds = {kind for option in options for kind in _kinds(option)}
    if written == "null" and "null" in kinds:
        return None
    literals = [value for option in options for value in _literals(option)]
    if "string" in kinds or written in literals:
        return written
    try:
        return json.loads(written, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return written


def _list(value: object) -> list[Any]:
    """Return a list that a schema should have here: nobody has checked it."""
    return value if isinstance(value, list) else []


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [kind for kind in [kind, *_list(kind)] if isinstance(kind, str)]


def _literals(schema: Mapping[str, Any]) -> list[object]:
    return [*_list(schema.get("enum")), *([schema["const"]] if "const" in schema else ())]


def _resolved(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference into the tool's own definitions, once."""
    if not isinstance(schema, Mapping):
        return {}
    path = str(schema.get("$ref", ""))
    for part in path.removeprefix("#/").split("/") if path.startswith("#/") else ():
        following = root.get(part)
        if not isinstance(following, Mapping):
            return {}
        root = schema = following
    return schema


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
