"""From msgspec's complaint about a client event to the error that its sender gets.

msgspec says where (`$.session.audio`) and in part what; what would be right is read off the
structs.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec import Struct, ValidationError, inspect

from sensorium.gateway.errors import PeerError

MAX_QUOTED_CHARS = 120  # of the peer's own words, given back to it

_WHERE = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>.*)`\Z", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[([\d.]+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`\Z", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value (?P<value>.*)\Z", re.DOTALL)
_JSON_TYPES = {"str": "a string", "int": "an integer", "float": "a number", "bool": "a boolean"}
_TYPE = re.compile(r"Expected .*, got `(?P<type>\w+)`\Z", re.DOTALL)


def quote(words: str) -> str:
    """Return the peer's own words, short enough to be given back."""
    return words if len(words) <= MAX_QUOTED_CHARS else f"{words[:MAX_QUOTED_CHARS]}…"


def peer_error(fault: ValidationError, event: type[Struct]) -> PeerError:
    """Return the error for `fault`, raised while decoding an `event`.

    >>> peer_error(ValidationError("Expected `int` >= 1 - at `$.response.max_output_tokens`"), …)
    invalid_value, param "response.max_output_tokens": "… expected an integer from 1 to 4096, …"
    """
    complaint = str(fault)
    where = _WHERE.search(complaint)
    path = where["path"] if where else ""
    complaint = complaint[: where.start()] if where else complaint
    if unknown := _UNKNOWN.match(complaint):
        return _unknown(_param(path, unknown["name"]), _nodes(event, path))
    if missing := _MISSING.match(complaint):
        name = missing["name"]
        return _missing(_param(path, name), _nodes(event, f"{path}.{name}"))
    nodes = _nodes(event, path)
    if where and where["key"]:
        keys = [node.key_type for node in nodes if isinstance(node, inspect.DictType)]
        return _invalid(_param(path), complaint, keys, what="key in")
    return _invalid(_param(path), complaint, nodes)


def _unknown(param: str, nodes: list[inspect.Type]) -> PeerError:
    known = ", ".join(_field_names(nodes))
    message = f"Unknown parameter: '{param}'; expected one of {known}."
    return PeerError("unknown_parameter", message, param=param)


def _missing(param: str, nodes: list[inspect.Type]) -> PeerError:
    message = f"Missing required parameter: '{param}'; expected {_expected(nodes)}."
    return PeerError("missing_required_parameter", message, param=param)


def _invalid(
    param: str, complaint: str, nodes: list[inspect.Type], *, what: str = "value for"
) -> PeerError:
    got = ""
    if value := _VALUE.match(complaint):
        got = f": {quote(value['value'])}"
    elif kind := _TYPE.match(complaint):
        got = f": got {_JSON_TYPES.get(kind['type'], kind['type'])}"
    right = _expected(nodes)
    reason = f"{got}; expected {right}" if right else f": {quote(complaint)}"
    return PeerError("invalid_value", f"Invalid {what} '{param}'{reason}.", param=param)


def _param(path: str, name: str = "") -> str:
    """`.item.content[0]`, `text` → `item.content[0].text`; a dict's values go by its own name."""
    return quote(f"{path.replace('[...]', '')}.{name}".strip("."))


@lru_cache
def _schema(event: type[Struct]) -> inspect.Type:
    return inspect.type_info(event)


def _nodes(event: type[Struct], path: str) -> list[inspect.Type]:
    """Return the types that are allowed at `path`; none if there is no such place."""
    nodes = list(_flat([_schema(event)]))
    for field, _ in _STEP.findall(path):
        nodes = list(_flat(_inside(nodes, field)))
    return nodes


def _flat(nodes: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    for node in nodes:
        if isinstance(node, inspect.UnionType):
            yield from _flat(node.types)
        elif isinstance(node, inspect.Metadata):
            yield from _flat([node.type])
        else:
            yield node


def _inside(nodes: Iterable[inspect.Type], field: str) -> Iterator[inspect.Type]:
    """One step down: into `field`, or with "" into the elements of a container."""
    for node in nodes:
        match node:
            case inspect.StructType() if field and field == node.tag_field:
                # Structs that let unknown keys pass are there only to be refused by name.
                if node.forbid_unknown_fields:
                    yield inspect.LiteralType(values=(node.tag,))
            case inspect.StructType():
                yield from (each.type for each in node.fields if each.encode_name == field)
            case inspect.ListType() if not field:
                yield node.item_type
            case inspect.DictType() if not field:
                yield node.value_type


def _field_names(nodes: Iterable[inspect.Type]) -> list[str]:
    structs = [node for node in nodes if isinstance(node, inspect.StructType)]
    names = [
        name
        for struct in structs
        if struct.forbid_unknown_fields
        for name in (struct.tag_field, *(field.encode_name for field in struct.fields))
        if name
    ]
    return list(dict.fromkeys(names))


def _expected(nodes: Iterable[inspect.Type]) -> str:
    """Say in words what `nodes` allow: "'auto', 'none', 'required', an object or null"."""
    words = list(dict.fromkeys(word for node in nodes for word in _describe(node)))
    if "null" in words:
        words.remove("null")
        words.append("null")
    return " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _describe(node: inspect.Type) -> list[str]:
    match node:
        case inspect.LiteralType():
            return [repr(value) for value in node.values]
        case inspect.IntType():
            return [f"an integer{_range(node.ge, node.le)}"]
        case inspect.FloatType():
            return [f"a number{_range(node.ge, node.le)}"]
        case inspect.StrType():
            return [f"a string{_at_most(node.max_length, 'characters')}"]
        case inspect.BoolType():
            return ["true", "false"]
        case inspect.ListType():
            least = f"at least {node.min_length} and " if node.min_length else ""
            return [f"an array of {least}at most {node.max_length} elements"]
        case inspect.DictType():
            return [f"an object{_at_most(node.max_length, 'pairs')}"]
        case inspect.StructType():
            return ["an object"]
        case inspect.NoneType():
            return ["null"]
        case _:
            return []


def _range(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f" from {least} to {most}"
    return f" of at least {least}" if least is not None else ""


def _at_most(most: int | None, unit: str) -> str:
    return "" if most is None else f" of at most {most} {unit}"
