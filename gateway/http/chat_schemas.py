"""JSON schemas that clients send: how large they may be, and what `response_format` asks for."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from sensorium.gateway.errors import PeerError

MAX_SCHEMA_BYTES = 64 << 10
"""As JSON; of all tools together. The engine compiles no larger grammar."""
MAX_DEPTH = 64
"""What is nested deeper is no schema or argument that anybody means."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_bounds(value: object, param: str, *, max_bytes: int | None = MAX_SCHEMA_BYTES) -> None:
    """Raise PeerError for a JSON value that is too large or nested too deeply."""
    layer = [value]
    for _ in range(MAX_DEPTH + 1):
        layer = [inner for outer in layer for inner in _inside(outer)]
        if not layer:
            break
    else:
        message = f"{param!r} is nested too deeply; {MAX_DEPTH} levels can be taken."
        raise PeerError("invalid_value", message, param=param)
    if max_bytes is not None and (size := len(msgspec.json.encode(value))) > max_bytes:
        message = f"{param!r} has {size} bytes of JSON; at most {max_bytes} can be taken."
        raise PeerError("invalid_value", message, param=param)


def _inside(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def schema_of(response_format: Mapping[str, Any] | None) -> str | None:
    """Return the JSON text of the schema that an answer must follow, None for free text.

    Raises PeerError. A schema is always followed, whatever `strict` says.
    """
    form = "response_format"
    match (response_format or {}).get("type", "text"):
        case "text":
            return None
        case "json_object":
            return json.dumps({"type": "object"})
        case "json_schema":
            check_bounds(response_format, form)
            return _named_schema((response_format or {}).get("json_schema"))
        case kind:
            raise PeerError(
                "invalid_value",
                f"The type {str(kind)[:50]!r} isn't known; types are 'text', 'json_object' and "
                "'json_schema'.",
                param=f"{form}.type",
            )


def _named_schema(declared: object) -> str:
    where = "response_format.json_schema"
    if not isinstance(declared, Mapping):
        message = "It must be an object with a 'name' and a 'schema'."
        raise PeerError("invalid_value", message, param=where)
    name, schema = declared.get("name"), declared.get("schema")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = "It must be 1 to 64 letters, digits, underscores or dashes."
        raise PeerError("invalid_value", message, param=f"{where}.name")
    if not isinstance(schema, Mapping):
        message = "It must be a JSON schema, which is an object."
        raise PeerError("invalid_value", message, param=f"{where}.schema")
    return json.dumps(schema)
