"""The mirror of a sequence sends differences only, and never loses count of spans."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from sensorium.core.api import (
    AppendTokens,
    CloseSequence,
    EngineRequest,
    Generate,
    OpenSequence,
    OpenSpan,
    Rollback,
    SamplingParams,
    SequenceId,
)
from sensorium.encoders.base import ClipHints
from sensorium.gateway.conversation import Unit
from sensorium.gateway.placement import Placement


class Engine:
    """What a sequence would hold after the requests so far: (span id, ids) in order."""

    def __init__(self) -> None:
        self.requests: list[EngineRequest] = []
        self.spans: list[tuple[int, tuple[int, ...]]] = []
        ids = count(1)
        self.placement = Placement(lambda: SequenceId(next(ids)), self.ask)

    def ask(self, request: EngineRequest) -> None:
        self.requests.append(request)
        match request:
            case AppendTokens(span_id=span, token_ids=token_ids):
                assert not self.spans or span > max(self.seen)
                self.spans.append((span, token_ids))
            case OpenSpan(span_id=span) | Generate(span_id=span):
                self.spans.append((span, (-1,)))
            case Rollback(keep_through=keep):
                self.spans = [s for s in self.spans if keep is not None and s[0] <= keep]
            case OpenSequence() | CloseSequence():
                self.spans = []
            case _:
                pass

    @property
    def seen(self) -> set[int]:
        return {getattr(r, "span_id", 0) for r in self.requests[:-1]}

    @property
    def ids(self) -> list[int]:
        return [i for _, token_ids in self.spans for i in token_ids]


def unit(name: str, *token_ids: int) -> Unit:
    return Unit(("item", name), (token_ids,))


def test_what_stands_there_is_not_sent_again() -> None:
    engine = Engine()
    engine.placement.sync([unit("a", 1), unit("b", 2)])
    before = len(engine.requests)
    engine.placement.sync([unit("a", 1), unit("b", 2), unit("c", 3)])
    assert [type(r) for r in engine.requests[before:]] == [AppendTokens]
    assert engine.ids == [1, 2, 3]


def test_a_change_rolls_back_to_before_it() -> None:
    engine = Engine()
    engine.placement.sync([unit("a", 1), unit("b", 2), unit("c", 3)])
    engine.placement.sync([unit("a", 1), unit("c", 3)])
    assert engine.ids == [1, 3]


def test_an_unfinished_message_is_discarded() -> None:
    engine = Engine()
    engine.placement.sync([unit("a", 1)])
    engine.placement.generate((7, 8), SamplingParams())
    engine.placement.sync([unit("a", 1)])
    assert engine.ids == [1]


def test_a_complete_message_is_kept_as_a_unit() -> None:
    engine = Engine()
    engine.placement.sync([unit("a", 1)])
    engine.placement.open_media((7,), ClipHints())
    engine.placement.complete(("item", "b"), (9,))
    before = len(engine.requests)
    engine.placement.sync([unit("a", 1), unit("b", 5)])
    assert engine.requests[before:] == []
    assert engine.ids == [1, 7, -1, 9]


def test_a_lost_sequence_is_built_anew() -> None:
    engine = Engine()
    engine.placement.sync([unit("a", 1)])
    engine.placement.lost()
    engine.placement.sync([unit("a", 1)])
    opened = [r.sequence_id for r in engine.requests if isinstance(r, OpenSequence)]
    assert opened == [1, 2]
    assert engine.ids == [1]


@given(st.lists(st.lists(st.integers(0, 6), unique=True, max_size=5), min_size=1, max_size=8))
def test_any_row_of_prompts_leaves_the_last(prompts: list[list[int]]) -> None:
    engine = Engine()
    for number, prompt in enumerate(prompts):
        engine.placement.sync([unit(str(i), i, i) for i in prompt])
        if number % 2:
            engine.placement.generate((99,), SamplingParams())
    engine.placement.sync([unit(str(i), i, i) for i in prompts[-1]])
    assert engine.ids == [i for i in prompts[-1] for _ in range(2)]
