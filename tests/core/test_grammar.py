"""Constraints over a vocabulary of single bytes, followed by walks that choose at random."""

import functools
import json
import tempfile
from pathlib import Path

import pytest
import torch
from tiny_text import write_tokenizer

from sensorium.core.api import Constraint
from sensorium.core.grammar import MAX_CACHED, Grammars
from sensorium.core.span import SequenceFault
from sensorium.core.text.tokenizer import Tokenizer

VOCAB = 300
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "age": {"type": "integer", "minimum": -5, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["x", "yy", None]}, "maxItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


@functools.cache
def tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        return Tokenizer(Path(folder))


@functools.cache
def grammars() -> Grammars:
    return Grammars(tokenizer(), VOCAB)


STOP = tokenizer().control("<|im_end|>")
MARK = tokenizer().control("<|im_start|>")


def schema(value: object) -> Constraint:
    return Constraint(kind="json_schema", grammar=json.dumps(value))


def lark(grammar: str) -> Constraint:
    return Constraint(kind="lark", grammar=grammar)


def fits(text: str) -> bool:
    """Whether `text` is JSON that fits SCHEMA, written by hand."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return (
        {"name", "age"} <= value.keys() <= {"name", "age", "tags"}
        and isinstance(value["name"], str)
        and len(value["name"]) <= 4
        and type(value["age"]) is int
        and -5 <= value["age"] <= 120
        and len(value.get("tags", [])) <= 2
        and all(tag in ("x", "yy", None) for tag in value.get("tags", []))
    )


def walk(constraint: Constraint, seed: int, *, max_tokens: int = 300) -> list[str]:
    """Choose evenly among what is allowed until the end; return the text before each choice."""
    matcher = grammars().matcher(constraint, [STOP])
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = []
    texts = [""]
    for _ in range(max_tokens):
        allowed = matcher.allowed()
        assert allowed is not None
        assert allowed.shape == (VOCAB,)
        assert constraint != schema(SCHEMA) or bool(allowed[STOP]) == fits(texts[-1])
        token_id = int(torch.multinomial(allowed.float(), 1, generator=generator))
        matcher.accept(token_id)
        if token_id == STOP:
            return texts
        ids.append(token_id)
        texts.append(tokenizer().decode(ids))
    raise AssertionError(f"no end after {texts[-1]!r}")


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_chosen_fits_and_ends_only_where_it_is_complete(seed: int) -> None:
    assert fits(walk(schema(SCHEMA), seed)[-1])


def test_after_a_complete_value_only_the_end_may_come() -> None:
    matcher = grammars().matcher(schema(SCHEMA), [STOP])
    for token_id in tokenizer().encode('{"name":"a","age":7}'):
        matcher.accept(token_id)
    allowed = matcher.allowed()
    assert allowed is not None
    assert allowed.nonzero().flatten().tolist() == [STOP]


def test_a_value_that_may_go_on_may_also_end() -> None:
    matcher = grammars().matcher(schema({"type": "integer"}), [STOP, VOCAB + 5])
    matcher.accept(ord("4"))
    allowed = matcher.allowed()
    assert allowed is not None
    assert allowed[STOP]
    assert allowed[ord("2")]
    assert not allowed[ord("x")]


@pytest.mark.parametrize("seed", range(5))
def test_a_lark_grammar_may_hold_schemas(seed: int) -> None:
    text = walk(lark('start: "<call>" %json {"enum": ["a", "b"]} "</call>"'), seed)[-1]
    assert text in ('<call>"a"</call>', '<call>"b"</call>')


def test_generations_follow_their_own_copies() -> None:
    one, other = (grammars().matcher(schema({"const": "ab"}), [STOP]) for _ in range(2))
    one.accept(ord('"'))
    for matcher, expected in ((one, "a"), (other, '"')):
        allowed = matcher.allowed()
        assert allowed is not None
        assert allowed.nonzero().flatten().tolist() == [ord(expected)]


def test_a_grammar_that_was_forgotten_is_compiled_again() -> None:
    for length in range(MAX_CACHED + 2):
        grammars().matcher(schema({"const": "a" * length}), [STOP])
    assert walk(schema({"const": ""}), 0)[-1] == '""'


@pytest.mark.parametrize(
    ("before", "is_begun"),
    [
        ([" to=user", MARK], True),
        ([" ", "to=", "user", MARK], True),
        ([" to=self", MARK, "thinking", STOP, "assistant to=user", MARK], True),
        ([MARK], False),
        ([" to=user"], False),
        ([" to=self", MARK], False),
        ([" to=user ", MARK], False),
        ([" to=user", STOP, MARK], False),
        ([" to=self", MARK, " to=us", STOP, "er", MARK], False),
    ],
)
def test_a_constraint_begins_after_its_text_and_control_token_alone(
    before: list[str | int], is_begun: bool
) -> None:
    constraint = Constraint(kind="lark", grammar='start: "yes"', begin=(" to=user", MARK))
    # STOP plays a control token of another channel here, so another id must be the stop id.
    matcher = grammars().matcher(constraint, [tokenizer().control("<|endoftext|>")])
    for piece in before:
        for token_id in [piece] if isinstance(piece, int) else tokenizer().encode(piece):
            assert matcher.allowed() is None
            matcher.accept(token_id)
    allowed = matcher.allowed()
    assert (allowed is not None) == is_begun
    assert allowed is None or allowed.nonzero().flatten().tolist() == [ord("y")]


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (Constraint(kind="json_schema", grammar="{"), "no proper JSON"),
        (Constraint(kind="json_schema", grammar="[" * 60_000), "no proper JSON"),
        (Constraint(kind="json_schema", grammar='{"const": NaN}'), "no proper JSON"),
        (Constraint(kind="json_schema", grammar=r'{"const": "\ud800"}'), "can't be followed"),
        (Constraint(kind="json_schema", grammar='"' + "x" * (64 << 10) + '"'), "limit is 65536"),
        (schema({"type": "foo"}), "Invalid type: foo"),
        (schema({"not": {}}), "Unimplemented keys"),
        (schema({"$ref": "https://example.com/a"}), "example.com"),
        (schema({"type": "string", "pattern": "("}), "regex"),
        (schema({"type": "integer", "multipleOf": 99_991}), "multipleOf"),
        (schema({"type": "number", "multipleOf": 1.0001}), "multipleOf"),
        (schema({"allOf": [{"multipleOf": n} for n in (97, 89, 83)]}), "multipleOf"),
        (schema({"anyOf": [{"multipleOf": 2}] * 40}), "multipleOf"),
        (Constraint(kind="json_schema", grammar=r'{"multiple\u004ff": 1e9}'), "multipleOf"),
        (lark("start: foo"), "unknown name"),
        (lark('start: %json {"multipleOf": 99991}'), "multipleOf"),
        (lark("start: %json {"), "no proper JSON"),
    ],
)
def test_a_bad_grammar_is_refused_with_its_reason(constraint: Constraint, message: str) -> None:
    with pytest.raises(SequenceFault, match=message) as refusal:
        grammars().matcher(constraint, [STOP]).allowed()
    assert refusal.value.code == "bad_request"
    assert len(str(refusal.value)) < 500


def test_refusal_does_not_quote_a_grammar_that_the_client_has_not_written() -> None:
    ours = lark('start: ours\nours: %json {"$ref": "#/nowhere"}')
    with pytest.raises(SequenceFault, match="'/nowhere'") as refusal:
        grammars().matcher(ours, [STOP]).allowed()
    assert "start" not in str(refusal.value)


@pytest.mark.parametrize(
    ("stops", "begin"),
    [([], None), ([VOCAB], None), ([STOP], ("x", 65)), ([STOP], ("x" * 300, MARK))],
)
def test_what_could_never_begin_or_end_is_refused(
    stops: list[int], begin: tuple[str, int] | None
) -> None:
    constraint = Constraint(kind="lark", grammar='start: "a"', begin=begin)
    with pytest.raises(SequenceFault, match=r"stop token|constraint\.begin"):
        grammars().matcher(constraint, stops)


def test_a_grammar_that_explodes_while_it_is_followed_is_a_fault() -> None:
    matcher = grammars().matcher(schema({"type": "string", "pattern": "a.{300}b"}), [STOP])
    letters = torch.randint(97, 99, (5_000,), generator=torch.Generator().manual_seed(0))

    def follow() -> None:
        for token_id in [ord('"'), *letters.tolist()]:
            matcher.allowed()
            matcher.accept(token_id)

    with pytest.raises(SequenceFault, match="too complex"):
        follow()
