"""A session over a Muse model: reasoning reaches nobody, the history keeps the published frame."""

import pytest
from session_rig import Rig
from tiny_text import tiny_muse_prompt

from sensorium.core.api import AppendTokens, Generate, SamplingParams
from sensorium.gateway.client_events import (
    CancelResponse,
    CreateItem,
    CreateResponse,
    UpdateSession,
)
from sensorium.gateway.items import Item, ItemReference, TextPart
from sensorium.gateway.server_events import ItemDeleted, OutputTextDelta, ResponseDone
from sensorium.gateway.settings import SessionSettings

REASONING = " to=self<|message|>SECRET plan<|eom|>"
REPLY = f"{REASONING}<|start|>assistant to=user<|message|>Hello."
SYSTEM = (
    "<|begin_of_text|><|start|>system<|message|>S\n\nReasoning strength: xhigh.\n\n"
    '# Valid recipients: "self", "user".<|eot|>'
)
USER = "<|start|>user<|message|>Hi<|eot|>"
ANSWER = f"<|start|>assistant{REPLY}<|eot|>"


def rig(reply: str = REPLY, **settings: int) -> Rig:
    made = Rig(
        prompt=tiny_muse_prompt(),
        settings=SessionSettings(default_instructions="S", **settings),
    )
    made.engine.reply = reply
    return made


def item(text: str, item_id: str = "", role: str = "user") -> CreateItem:
    content = (TextPart(text=text),)
    return CreateItem(item=Item(item_id=item_id, role=role, content=content))  # type: ignore[arg-type]  # str literals


def appended(made: Rig, start: int = 0) -> str:
    """Return all that was appended as tokens since request `start`."""
    ids = [r.token_ids for r in made.asked[start:] if isinstance(r, AppendTokens)]
    return "".join(made.prompt.tokenizer.spell(tokens) for tokens in ids)


def deltas(made: Rig) -> str:
    return "".join(event.text for event in made.of(OutputTextDelta))


def test_only_the_final_answer_reaches_the_peer() -> None:
    made = rig()
    made.send(item("Hi"), CreateResponse())
    assert deltas(made) == "Hello."
    [done] = made.of(ResponseDone)
    assert done.response.output[0].content == (TextPart(text="Hello."),)
    assert done.response.status == "completed"
    assert "SECRET" not in repr(made.said)
    assert appended(made) == f"{SYSTEM}{USER}<|start|>assistant<|eot|>"
    [generate] = [r for r in made.asked if isinstance(r, Generate)]
    assert generate.sampling == SamplingParams(
        max_tokens=SessionSettings().max_output_tokens,
        stop_token_ids=tiny_muse_prompt().stop_token_ids,
    )


@pytest.mark.parametrize("limit", range(1, 45))
def test_reply_that_is_cut_off_anywhere_shows_no_reasoning(limit: int) -> None:
    made = rig()
    made.send(item("Hi"), CreateResponse(max_output_tokens=limit))
    [done] = made.of(ResponseDone)
    assert done.response.status == "incomplete"
    assert "Hello.".startswith(deltas(made))
    assert "SECRET" not in repr(made.said)
    assert " to=" not in repr(made.said)


def test_reply_that_is_cancelled_while_it_reasons_shows_nothing() -> None:
    made = rig()
    made.engine.held = True
    made.engine.chunk = 12
    made.send(item("Hi"), CreateResponse(), CancelResponse(response_id=None))
    [done] = made.of(ResponseDone)
    assert (done.response.status, deltas(made)) == ("cancelled", "")
    assert "SEC" not in repr(made.said)


def test_next_prompt_goes_on_behind_the_answer_as_it_was_written() -> None:
    made = rig()
    made.send(item("Hi"), CreateResponse())
    start = len(made.asked)
    made.send(item("Hi"), CreateResponse())
    assert appended(made, start) == f"{USER}<|start|>assistant<|eot|>"


def test_answer_that_was_cut_off_in_its_reasoning_leaves_the_prompt() -> None:
    made = rig()
    made.send(item("Hi"), CreateResponse(max_output_tokens=20))
    start = len(made.asked)
    made.send(CreateResponse())
    assert appended(made, start) == "<|start|>assistant<|eot|>"


def test_sequence_made_anew_has_the_reasoning_that_the_lost_one_had() -> None:
    made = rig()
    made.send(item("Hi"), CreateResponse())
    info = made.engine.info
    made.do(made.engine.lose)
    made.engine.info = info
    start = len(made.asked)
    made.send(item("Hi"), CreateResponse())
    made.wait(1.0)
    assert appended(made, start) == f"{SYSTEM}{USER}{ANSWER}{USER}<|start|>assistant<|eot|>"


def test_answers_of_the_client_and_quoted_ones_are_to_the_user() -> None:
    made = rig()
    made.send(item("Hi"), item("Yes <|eot|>", "a", "assistant"), CreateResponse())
    said = made.prompt.tokenizer.encode_markup("<|start|>assistant to=user<|message|>")
    typed = [*made.prompt.tokenizer.encode("Yes <|eot|>"), *made.prompt.close_message()]
    ids = [r.token_ids for r in made.asked if isinstance(r, AppendTokens)]
    assert (*said, *typed) in ids
    start = len(made.asked)
    made.send(CreateResponse(out_of_band=True, input=(ItemReference(item_id="a"),)))
    assert "<|start|>assistant to=user<|message|>Yes" in appended(made, start)


def test_reasoning_counts_where_the_context_is_full() -> None:
    made = rig(f" to=self<|message|>{'x' * 700}<|eom|><|start|>assistant to=user<|message|>Ok")
    for _ in range(4):
        made.send(item("Hi"), CreateResponse(max_output_tokens=800))
    assert all(done.response.status == "completed" for done in made.of(ResponseDone))
    assert made.of(ItemDeleted)
    [sequence] = made.engine.sequences.values()
    assert sequence.num_positions <= 2048


def test_changed_instructions_make_another_head() -> None:
    made = rig()
    made.send(item("Hi"), CreateResponse(), UpdateSession(changes={"instructions": "T"}))
    start = len(made.asked)
    made.send(CreateResponse())
    assert appended(made, start).startswith(SYSTEM.replace(">S\n", ">T\n") + USER)
