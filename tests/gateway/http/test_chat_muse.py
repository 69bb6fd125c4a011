"""`POST /v1/chat/completions` over a Muse model: the answer alone, and the published frame."""

import json
from typing import Any

import pytest
from app_rig import fake_engine, http_client, make_app
from fakes import FakeEngine
from glimmer_template import GLIMMER
from tiny_text import tiny_muse_prompt, tiny_muse_tokenizer

from sensorium.core.api import AppendTokens, Generate
from sensorium.core.text.grammars import GRAMMARS
from sensorium.core.text.muse import MusePrompt
from sensorium.core.text.sandbox import Sandbox
from sensorium.core.text.template import ChatTemplate

PATH = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Hi <|eot|>"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Go"},
    ]
}
REPLY = (
    " to=self<|message|>SECRET one, two<|eom|>"
    "<|start|>assistant to=commentary<|message|>SECRET note<|eom|>"
    "<|start|>assistant to=user<|message|>one, two"
)


def engine_saying(reply: str = REPLY) -> FakeEngine:
    return fake_engine(reply=reply, encode=tiny_muse_tokenizer().encode_markup)


async def answer(engine: FakeEngine, ask: dict[str, Any], prompt: MusePrompt) -> tuple[str, str]:
    """Return the text and why it ended; nothing of the reasoning is in the response."""
    async with http_client(make_app(engine, prompt=prompt)) as client:
        response = await client.post(PATH, json=ask)
    assert response.status_code == 200
    assert "SECRET" not in response.text
    if not ask.get("stream"):
        [choice] = response.json()["choices"]
        return choice["message"]["content"], choice["finish_reason"]
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    text = "".join(choice["delta"].get("content", "") for choice in choices)
    return text, choices[-1]["finish_reason"]


@pytest.mark.parametrize("stream", [True, False])
async def test_only_the_final_answer_is_content(stream: bool) -> None:
    engine = engine_saying()
    text = await answer(engine, {**ASK, "stream": stream}, tiny_muse_prompt())
    assert text == ("one, two", "stop")
    [generate] = [request for request in engine.requests if isinstance(request, Generate)]
    assert generate.sampling.stop_token_ids == tiny_muse_prompt().stop_token_ids


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("limit", [1, 9, 12, 30, 45, 70, 85])
async def test_answer_that_is_cut_off_shows_no_reasoning(stream: bool, limit: int) -> None:
    ask = {**ASK, "stream": stream, "max_tokens": limit}
    text, reason = await answer(engine_saying(), ask, tiny_muse_prompt())
    assert "one, two".startswith(text)
    assert reason == "length"


async def test_stop_string_is_looked_for_in_the_answer_alone() -> None:
    text = await answer(engine_saying(), {**ASK, "stop": [", two"]}, tiny_muse_prompt())
    assert text == ("one", "stop")


def templated(source: str = GLIMMER) -> MusePrompt:
    tokenizer = tiny_muse_tokenizer()
    template = ChatTemplate(Sandbox(source), tokenizer, bos_token="<|begin_of_text|>")
    return MusePrompt(tokenizer, GRAMMARS["muse"], template)


@pytest.mark.parametrize(
    ("prompt", "effort"),
    [(tiny_muse_prompt(), "Reasoning strength: xhigh."), (templated(), "Think: xhigh.")],
    ids=["ours", "template"],
)
async def test_messages_have_the_published_frame(prompt: MusePrompt, effort: str) -> None:
    engine = engine_saying()
    await answer(engine, ASK, prompt)
    [ids] = [r.token_ids for r in engine.requests if isinstance(r, AppendTokens)]
    tokenizer = tiny_muse_tokenizer()
    expected = [
        *tokenizer.encode_markup(
            f"<|begin_of_text|><|start|>system<|message|>S\n\n{effort}\n\n"
            '# Valid recipients: "self", "user".<|eot|><|start|>user<|message|>'
        ),
        *tokenizer.encode("Hi <|eot|>"),
        *tokenizer.encode_markup(
            "<|eot|><|start|>assistant to=user<|message|>Yes?<|eot|>"
            "<|start|>user<|message|>Go<|eot|><|start|>assistant"
        ),
    ]
    assert list(ids) == expected


async def test_messages_that_the_template_refuses_are_the_clients_fault() -> None:
    refusing = GLIMMER.replace(
        "{{- bos_token -}}",
        "{{- bos_token -}}{%- if messages[-1].content == 'Go' -%}"
        "{{ raise_exception('no going here') }}{%- endif -%}",
    )
    async with http_client(make_app(engine_saying(), prompt=templated(refusing))) as client:
        response = await client.post(PATH, json=ASK)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "messages")
    assert "no going here" in error["message"]
