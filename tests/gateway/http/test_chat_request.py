"""The body of a chat request: what is taken, ignored and refused. Messages: test_chat_messages."""

import json
from typing import Any

import pytest

from sensorium.core.api import Constraint
from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.chat_request import parse_chat

MESSAGES = [{"role": "user", "content": "hi"}]


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": MESSAGES, **fields}).encode()


def test_sampling_is_greedy_unless_asked() -> None:
    sampling = parse_chat(body()).sampling(default_tokens=512, room=100, stop_token_ids=(2,))
    assert (sampling.temperature, sampling.max_tokens) == (0.0, 100)
    assert sampling.stop_token_ids == (2,)
    chat = parse_chat(
        body(temperature=0.7, top_p=0.9, seed=5, max_tokens=3, max_completion_tokens=7)
    )
    sampling = chat.sampling(default_tokens=512, room=100, stop_token_ids=())
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.7, 0.9, 5)
    assert sampling.max_tokens == 7


def test_what_the_engine_samples_by_is_handed_on() -> None:
    constraint = Constraint(kind="json_schema", grammar="{}")
    chat = parse_chat(body(top_k=40, min_p=0.1, logprobs=True, top_logprobs=5))
    sampling = chat.sampling(
        default_tokens=512, room=100, stop_token_ids=(2,), constraint=constraint
    )
    assert (sampling.top_k, sampling.min_p, sampling.num_logprobs) == (40, 0.1, 5)
    assert sampling.constraint == constraint


@pytest.mark.parametrize(
    ("fields", "count"),
    [({}, None), ({"logprobs": False}, None), ({"logprobs": True}, 0), ({"top_logprobs": 0}, None)],
)
def test_logprobs_are_counted_only_if_asked_for(fields: dict[str, Any], count: int | None) -> None:
    sampling = parse_chat(body(**fields)).sampling(default_tokens=9, room=9, stop_token_ids=())
    assert sampling.num_logprobs == count


def test_stops_may_be_one_or_several() -> None:
    assert parse_chat(body(stop="x")).stops() == ("x",)
    assert parse_chat(body(stop=["x", "", "y"])).stops() == ("x", "y")
    assert parse_chat(body(stop=None)).stops() == ()


def test_fields_without_effect_are_ignored() -> None:
    ignored = {"user": "u", "store": True, "metadata": {}, "service_tier": "auto"}
    harmless = {
        "tools": [],
        "tool_choice": "auto",
        "n": 1,
        "logprobs": False,
        "presence_penalty": 0,
        "function_call": "none",
        "verbosity": "medium",
    }
    plain = {"response_format": {"type": "text"}, "modalities": ["text"]}
    chat = parse_chat(body(**ignored, **harmless, **plain))
    assert not chat.tool_use().tools


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"functions": [{}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"response_format": "json"}, "response_format"),
        ({"n": 2}, "n"),
        ({"logprobs": 3}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 2**70}, "top_k"),
        ({"seed": 2**63}, "seed"),
        ({"min_p": 1.5}, "min_p"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"verbosity": "low"}, "verbosity"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0]"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(PeerError) as refused:
        parse_chat(body(**fields))
    assert refused.value.param == param


LEVELS = ("low", "high")


def test_effort_is_one_of_the_models_levels() -> None:
    assert parse_chat(body(reasoning_effort="high")).effort(LEVELS) == "high"
    assert parse_chat(body()).effort(LEVELS) is None
    assert parse_chat(body()).effort(()) is None


@pytest.mark.parametrize(
    ("effort", "levels", "told"),
    [
        ("medium", LEVELS, "low, high"),
        ("none", LEVELS, "can't be switched off"),
        ("minimal", LEVELS, "low, high"),
        ("low", (), "leave it out"),
    ],
)
def test_other_efforts_are_refused_with_what_there_is(
    effort: str, levels: tuple[str, ...], told: str
) -> None:
    with pytest.raises(PeerError) as refused:
        parse_chat(body(reasoning_effort=effort)).effort(levels)
    assert refused.value.param == "reasoning_effort"
    assert told in refused.value.message


NESTED = b'{"messages": [{"role": "user", "content": "x"}], "tools": [' + b"[" * 100_000


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"{}", NESTED])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(PeerError):
        parse_chat(data)
