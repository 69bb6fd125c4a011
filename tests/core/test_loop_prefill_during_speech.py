"""A spoken turn is read while it is spoken: what is left at the commit doesn't grow with it.

Driven by hand on the media clock: real engine (tiny, random), real pool, scripted ears.
"""

from typing import TypeVar

import pytest
from fake_encoder import RATE_HZ, ScriptedEncoder
from fakes import MODEL
from tiny_model import CONFIG, answer, ids_of, tiny_engine, tiny_model

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    CloseSpan,
    EngineEvent,
    EngineLoad,
    EngineRequest,
    Generate,
    OpenSequence,
    OpenSpan,
    SamplingParams,
    SequenceId,
    SpanClosed,
    SpanId,
    TurnEnded,
)
from sensorium.core.loop import EngineLoop, LoadedModels
from sensorium.core.models.llama import Llama

ONE = SequenceId(1)
HEAD, SPEECH, TAIL, REPLY = map(SpanId, range(1, 5))
HEAD_IDS, TAIL_IDS = (1, 2, 3), (4, 5)
WORDS_PER_S, UNSETTLED_S, GRID_S = 3, 2, 1
Event = TypeVar("Event", bound=EngineEvent)
PACKET = bytes(4 * RATE_HZ // 50)  # 20 ms


def encode(text: str) -> list[int]:
    """One id per word: " word7" is 17."""
    return [10 + int(word.removeprefix("word")) % 80 for word in text.split()]


class Rig:
    """The loop without threads and clock; `events` is what the gateway would have got."""

    def __init__(self) -> None:
        self.events: list[EngineEvent | EngineLoad] = []
        self.engine = tiny_engine(num_blocks=200, model=roomy_model())
        encoder = ScriptedEncoder(words_per_s=WORDS_PER_S, unsettled_s=UNSETTLED_S)
        models = LoadedModels(
            engine=self.engine, encoders={"audio": encoder}, encode=encode, info=MODEL
        )
        self.loop = EngineLoop(models, publish=self.events.extend, clock=lambda: 0.0)

    def submit(self, *requests: EngineRequest) -> None:
        """Hand over requests and let everything come to rest."""
        for request in requests:
            self.loop.receive(request)
        while self.loop.turn() or self.loop.pool.run_once():
            pass

    def only(self, kind: type[Event]) -> Event:
        """Return the one event of a type."""
        (event,) = [event for event in self.events if isinstance(event, kind)]
        return event


def roomy_model() -> Llama:
    """The tiny decoder with room for two minutes of words."""
    model = Llama({**CONFIG, "max_position_embeddings": 600})
    for ours, theirs in zip(model.parameters(), tiny_model().parameters(), strict=True):
        ours.copy_(theirs)
    return model


@pytest.mark.parametrize("seconds", [2, 20, 120])
def test_only_the_last_words_are_left_to_prefill_at_the_commit(seconds: int) -> None:
    rig = Rig()
    rig.submit(
        OpenSequence(sequence_id=ONE),
        AppendTokens(sequence_id=ONE, span_id=HEAD, token_ids=HEAD_IDS),
        OpenSpan(sequence_id=ONE, span_id=SPEECH),
    )
    for packet in range(50 * seconds):
        pts = packet * RATE_HZ // 50
        rig.submit(
            AppendMedia(
                sequence_id=ONE, span_id=SPEECH, pts=pts, shape=(len(PACKET) // 4,), data=PACKET
            )
        )
        assert rig.engine.num_to_prefill(ONE) == 0

    for request in (
        CloseSpan(sequence_id=ONE, span_id=SPEECH),
        AppendTokens(sequence_id=ONE, span_id=TAIL, token_ids=TAIL_IDS),
        Generate(sequence_id=ONE, span_id=REPLY, sampling=SamplingParams(max_tokens=4)),
    ):
        rig.loop.receive(request)
    rig.submit()

    spoken = rig.only(SpanClosed).token_ids
    usage = rig.only(TurnEnded).usage
    assert len(spoken) == WORDS_PER_S * seconds
    assert usage.num_prompt_tokens == len(HEAD_IDS) + len(spoken) + len(TAIL_IDS)
    most_unsettled = WORDS_PER_S * (UNSETTLED_S + GRID_S)
    assert usage.num_uncached_tokens <= most_unsettled + len(TAIL_IDS)


def test_the_answer_is_that_of_the_same_words_typed() -> None:
    rig = Rig()
    rig.submit(
        OpenSequence(sequence_id=ONE),
        AppendTokens(sequence_id=ONE, span_id=HEAD, token_ids=HEAD_IDS),
        OpenSpan(sequence_id=ONE, span_id=SPEECH),
        *(
            AppendMedia(
                sequence_id=ONE,
                span_id=SPEECH,
                pts=second * RATE_HZ,
                shape=(len(PACKET) // 4 * 50,),
                data=PACKET * 50,
            )
            for second in range(7)
        ),
        CloseSpan(sequence_id=ONE, span_id=SPEECH),
        AppendTokens(sequence_id=ONE, span_id=TAIL, token_ids=TAIL_IDS),
        Generate(sequence_id=ONE, span_id=REPLY, sampling=SamplingParams(max_tokens=8)),
    )
    words = "".join(f" word{n}" for n in range(7 * WORDS_PER_S))
    assert rig.only(SpanClosed).transcript == words.lstrip()
    typed = (*HEAD_IDS, *encode(words), *TAIL_IDS)
    events = [event for event in rig.events if not isinstance(event, EngineLoad)]
    assert ids_of(events, ONE) == answer(typed, 8, model=roomy_model(), num_blocks=200)
