"""`response_format` and the bounds of what clients declare."""

import json
from typing import Any

import pytest

from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.chat_schemas import (
    MAX_DEPTH,
    MAX_SCHEMA_BYTES,
    check_bounds,
    schema_of,
)

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "number"}}}


def named(**fields: Any) -> dict[str, Any]:
    declared = {"name": "answer", "schema": SCHEMA, "strict": True, **fields}
    return {"type": "json_schema", "json_schema": declared}


def nested(depth: int) -> Any:
    return {} if depth == 0 else {"items": nested(depth - 1)}


def test_free_text_has_no_schema() -> None:
    assert schema_of(None) is None
    assert schema_of({"type": "text"}) is None


def test_json_object_is_any_object() -> None:
    assert json.loads(schema_of({"type": "json_object"}) or "") == {"type": "object"}


@pytest.mark.parametrize("strict", [True, False, None])
def test_schema_is_followed_with_its_keys_in_order(strict: bool | None) -> None:
    assert schema_of(named(strict=strict)) == json.dumps(SCHEMA)


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"type": "grammar"}, "response_format.type"),
        ({"type": 1}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        (named(name="no spaces"), "response_format.json_schema.name"),
        (named(name="x" * 65), "response_format.json_schema.name"),
        (named(name=None), "response_format.json_schema.name"),
        (named(schema=None), "response_format.json_schema.schema"),
        (named(schema=[1]), "response_format.json_schema.schema"),
        (named(schema=nested(MAX_DEPTH + 1)), "response_format"),
        (named(schema={"description": "x" * MAX_SCHEMA_BYTES}), "response_format"),
    ],
)
def test_refusals_name_the_field(form: dict[str, Any], param: str) -> None:
    with pytest.raises(PeerError) as refused:
        schema_of(form)
    assert refused.value.param == param


def test_bounds_are_where_they_are_said_to_be() -> None:
    check_bounds(nested(MAX_DEPTH), "x")
    with pytest.raises(PeerError, match=f"{MAX_DEPTH} levels"):
        check_bounds(nested(MAX_DEPTH + 1), "x")
    check_bounds("x" * (MAX_SCHEMA_BYTES - 2), "x")
    with pytest.raises(PeerError, match=f"at most {MAX_SCHEMA_BYTES}"):
        check_bounds("x" * (MAX_SCHEMA_BYTES - 1), "x")
