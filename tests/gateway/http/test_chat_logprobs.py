"""Log probabilities belong to the tokens of the text that is shown, however late it is decided."""

import functools
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_text import (
    CONTROL_TOKENS,
    muse_ids,
    tiny_muse_prompt,
    tiny_muse_tokenizer,
    tiny_prompt,
    write_tokenizer,
)

from sensorium.core.api import TokenLogprobs
from sensorium.core.text.channels import ChannelStream, TextStream
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.core.text.tools import parse_tools
from sensorium.gateway.http.chat_answer import AnswerReader, Called, Shown
from sensorium.gateway.http.chat_logprobs import AnswerTokens, ChosenToken, as_openai
from sensorium.gateway.http.chat_tools import ToolUse

TOOLS = parse_tools([{"type": "function", "function": {"name": "f"}}])
USE = ToolUse(tools=TOOLS, callable_tools=TOOLS)
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def read(
    tokenizer: Tokenizer, stream: ChannelStream, ids: list[int], stops: tuple[str, ...] = ()
) -> list[Shown | Called]:
    """Read ids one by one, as the engine sends them; a token's place is in its logprob."""
    reader = AnswerReader(stream, use=USE, stops=stops, tokens=AnswerTokens(tokenizer))
    pieces: list[Shown | Called] = []
    for place, token_id in enumerate(ids):
        pieces += reader.push([token_id], [TokenLogprobs(logprob=float(-place))])
    return pieces + reader.finish(cut=False)


def places(pieces: list[Shown | Called]) -> list[int]:
    """Return where in the generation the listed tokens stand."""
    tokens = [token for piece in pieces if isinstance(piece, Shown) for token in piece.tokens]
    return [int(-token.logprobs.logprob) for token in tokens]


def assert_listed(tokenizer: Tokenizer, ids: list[int], pieces: list[Shown | Called]) -> None:
    """The tokens of each piece joined are its text."""
    listed = places(pieces)
    assert listed == sorted(set(listed))
    text = "".join(piece.text for piece in pieces if isinstance(piece, Shown))
    assert tokenizer.decode([ids[place] for place in listed]) == text


@given(st.binary(max_size=40), st.sampled_from([(), ("a",), ("aa", "é")]))
def test_tokens_of_any_bytes_are_those_of_the_text(data: bytes, stops: tuple[str, ...]) -> None:
    text = data.decode("utf-8", "ignore") + "aaé👍🏽 "
    tokenizer = tiny_prompt().tokenizer
    ids = tokenizer.encode(text)
    assert_listed(tokenizer, ids, read(tokenizer, tiny_prompt().stream(), ids, stops))


@given(st.lists(st.sampled_from(["a", "aé", "👍", CALL, "\n", "<", "<tool", " "]), max_size=8))
def test_tokens_of_calls_are_left_out(parts: list[str]) -> None:
    tokenizer = tiny_prompt().tokenizer
    ids = tokenizer.encode("".join(parts))
    pieces = read(tokenizer, tiny_prompt().stream(TOOLS), ids)
    assert sum(isinstance(piece, Called) for piece in pieces) == parts.count(CALL)
    assert_listed(tokenizer, ids, pieces)


def test_text_after_a_call_has_its_own_tokens() -> None:
    tokenizer = tiny_prompt().tokenizer
    ids = tokenizer.encode(f"{CALL}f")  # an "f" stands in the call, too
    assert places(read(tokenizer, tiny_prompt().stream(TOOLS), ids)) == [len(ids) - 1]


BODY = st.lists(
    st.sampled_from(["one", " t", " to", " to=", "é", "👍", "to=user", "x"]), max_size=5
)
HEADER = st.sampled_from([" to=user", " to=self", " to=commentary", " to=developer"])


@given(st.lists(st.tuples(HEADER, BODY), min_size=1, max_size=4))
def test_tokens_of_headers_and_reasoning_are_left_out(
    messages: list[tuple[str, list[str]]],
) -> None:
    written = [f"{header}<|message|>{''.join(body)}<|eom|>" for header, body in messages]
    ids = muse_ids("<|start|>assistant".join(written))
    pieces = read(tiny_muse_tokenizer(), tiny_muse_prompt().stream(), ids)
    said = ["".join(body) for header, body in messages if header == " to=user"]
    assert "".join(piece.text for piece in pieces if isinstance(piece, Shown)) == "".join(said)
    assert_listed(tiny_muse_tokenizer(), ids, pieces)


@pytest.mark.parametrize(
    ("written", "listed"),
    [
        ("<|message|>no", []),  # the tiny prompt's bare messages are reasoning
        (" to=user<|message|>to", [9, 10]),  # "to" stands in the header, too
        (" to=self<|message|>to<|eom|> to=user<|message|>o<|eom|>", [21]),
    ],
)
def test_texts_after_headers_have_their_own_tokens(written: str, listed: list[int]) -> None:
    ids = muse_ids(written)
    assert places(read(tiny_muse_tokenizer(), tiny_muse_prompt().stream(), ids)) == listed


def test_half_a_character_before_a_control_token_is_listed() -> None:
    half = [*muse_ids(" to=user<|message|>"), *muse_ids("é")[:1], *muse_ids("<|eom|>")]
    assert places(read(tiny_muse_tokenizer(), tiny_muse_prompt().stream(), half)) == [9]


LONG = ("hello", "wor", "ld</tool", "_call>", " END", "ing", "é!")


@functools.cache
def long_tokens() -> Tokenizer:
    """Return single bytes and a few tokens of many characters."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        write_tokenizer(Path(folder), (*CONTROL_TOKENS, *LONG))
        content = json.loads(path.read_text())
        for token in content["added_tokens"][len(CONTROL_TOKENS) :]:
            token["special"] = False
        path.write_text(json.dumps(content))
        return Tokenizer(Path(folder))


def names(tokenizer: Tokenizer, pieces: list[Shown | Called]) -> list[str]:
    tokens = [token for piece in pieces if isinstance(piece, Shown) for token in piece.tokens]
    return [tokenizer.spell([token.token_id]) for token in tokens]


def test_token_that_a_stop_string_cuts_is_listed_and_the_rest_is_not() -> None:
    tokenizer = long_tokens()
    ids = tokenizer.encode_markup("hello ENDing")
    stream = TextStream(tokenizer)
    # " END" has the space before the stop string
    assert names(tokenizer, read(tokenizer, stream, ids, ("END",))) == ["hello", " END"]
    stream = TextStream(tokenizer)
    assert names(tokenizer, read(tokenizer, stream, ids, (" END",))) == ["hello"]


def test_tokens_that_go_over_the_end_of_a_call() -> None:
    tokenizer = long_tokens()
    # "_call>" ends the call; the space after it is dropped, "é!" is text again.
    ids = [
        *tokenizer.encode_markup("hello"),
        *tokenizer.encode(CALL.removesuffix("_call>")),
        *tokenizer.encode_markup("_call> é!wor"),
    ]
    pieces = read(tokenizer, TextStream(tokenizer, TOOLS), ids)
    assert "".join(piece.text for piece in pieces if isinstance(piece, Shown)) == "helloé!wor"
    assert names(tokenizer, pieces) == ["hello", "é!", "wor"]


def test_parts_of_a_character_are_listed_with_it() -> None:
    tokenizer = tiny_prompt().tokenizer
    [piece] = read(tokenizer, tiny_prompt().stream(), tokenizer.encode("é"))
    assert isinstance(piece, Shown)
    listed = as_openai(tokenizer, piece.tokens)["content"]
    assert [entry["bytes"] for entry in listed] == [[0xC3], [0xA9]]


def test_half_a_character_at_the_end_is_listed() -> None:
    tokenizer = tiny_prompt().tokenizer
    pieces = read(tokenizer, tiny_prompt().stream(), tokenizer.encode("aé")[:-1])
    [*_, last] = [piece for piece in pieces if isinstance(piece, Shown)]
    assert last.text == "\N{REPLACEMENT CHARACTER}"
    assert places(pieces) == [0, 1]


def test_shape_is_openais() -> None:
    tokenizer = tiny_prompt().tokenizer
    end = tokenizer.control("<|im_end|>")
    [letter] = tokenizer.encode("A")
    top = ((letter, -0.5), (end, -1.5), (letter + 1, float("-inf")))
    token = ChosenToken(token_id=letter, logprobs=TokenLogprobs(logprob=-0.5, top=top))
    likely = {"token": "A", "logprob": -0.5, "bytes": [65]}
    unlikely = {"token": "B", "logprob": -9999.0, "bytes": [66]}
    control = {"token": "<|im_end|>", "logprob": -1.5, "bytes": None}
    assert as_openai(tokenizer, [token]) == {
        "content": [{**likely, "top_logprobs": [likely, control, unlikely]}],
        "refusal": None,
    }
    assert as_openai(tokenizer, []) == {"content": [], "refusal": None}


def test_control_token_in_the_text_is_no_part_of_it() -> None:
    tokenizer = tiny_prompt().tokenizer
    ids = tokenizer.encode_markup("a<|im_start|>b")
    pieces = read(tokenizer, tiny_prompt().stream(), ids)
    assert names(tokenizer, pieces) == ["a", "b"]
