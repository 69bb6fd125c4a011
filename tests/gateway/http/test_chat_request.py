"""The body of a chat request: what is taken, ignored and refused."""

import json
from typing import Any

import pytest

from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.chat_request import parse_chat

MESSAGES = [{"role": "user", "content": "hi"}]


def body(**fields: Any) -> bytes:
    return json.dumps({"messages": MESSAGES, **fields}).encode()


def test_content_parts_and_roles() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": parts, "name": "ann"},
        {"role": "assistant", "content": None},
    ]
    chat = parse_chat(body(messages=messages))
    assert chat.turns() == [("system", "be brief"), ("user", "ab"), ("assistant", "")]


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
    }
    plain = {"response_format": {"type": "text"}, "modalities": ["text"]}
    assert parse_chat(body(**ignored, **harmless, **plain)).turns() == [("user", "hi")]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"functions": [{}]}, "functions"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
        ),
        ({"messages": [{"content": "x"}]}, "messages[0]"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(PeerError) as refused:
        parse_chat(body(**fields)).turns()
    assert refused.value.param == param


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"{}"])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(PeerError):
        parse_chat(data)
