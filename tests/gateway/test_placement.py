"""The mirror of a sequence sends differences only, and never loses count of spans."""

from itertools import count

from conversation_rig import clip
from hypothesis import given
from hypothesis import strategies as st

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    CloseSequence,
    CloseSpan,
    EngineRequest,
    Generate,
    OpenSequence,
    OpenSpan,
    Rollback,
    SamplingParams,
    SequenceId,
    SpanId,
)
from sensorium.encoders.base import ClipHints
from sensorium.gateway.conversation import Unit
from sensorium.gateway.media import Medium, Piece
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
    engine.placement.append((7,))
    engine.placement.open_media(ClipHints())
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


# --- media ----------------------------------------------------------------------------------------

FILM = Medium(
    modality="video",
    encoder="eyes",
    pieces=(
        Piece(pts=0, shape=(1, 2, 1, 3), dtype="uint8", data=b"abcdef"),
        Piece(pts=500_000, shape=(1, 2, 1, 3), dtype="uint8", data=b"ghijkl"),
    ),
    content="film",
    gives_rows=True,
    num_positions=9,
)
WATCHED = Unit(("item", "film"), ((1, 2), FILM, (3,), FILM, (4,)))


def test_a_medium_is_a_span_of_its_own_between_its_neighbours() -> None:
    engine = Engine()
    engine.placement.sync([WATCHED, unit("b", 9)])
    assert engine.spans == [(1, (1, 2)), (2, (-1,)), (3, (3,)), (4, (-1,)), (5, (4,)), (6, (9,))]
    first = [r for r in engine.requests if getattr(r, "span_id", 0) == 2]
    assert first == [
        OpenSpan(
            sequence_id=SequenceId(1),
            span_id=SpanId(2),
            modality="video",
            hints=ClipHints(live=False),
            content="film",
        ),
        *(
            AppendMedia(
                sequence_id=SequenceId(1),
                span_id=SpanId(2),
                pts=piece.pts,
                shape=(1, 2, 1, 3),
                dtype="uint8",
                data=piece.data,
            )
            for piece in FILM.pieces
        ),
        CloseSpan(sequence_id=SequenceId(1), span_id=SpanId(2), content="film"),
    ]


def test_media_are_named_for_their_tenant() -> None:
    requests: list[EngineRequest] = []
    placement = Placement(lambda: SequenceId(1), requests.append, "somebody")
    placement.sync([WATCHED])
    placement.append((1,))
    placement.open_media(ClipHints())
    assert [r.tenant for r in requests if isinstance(r, OpenSpan)] == ["somebody"] * 3


def test_media_that_stand_there_are_not_sent_again() -> None:
    engine = Engine()
    engine.placement.sync([WATCHED])
    before = len(engine.requests)
    engine.placement.sync([WATCHED, unit("b", 9)])
    assert [type(r) for r in engine.requests[before:]] == [AppendTokens]


def test_media_behind_a_change_are_sent_again() -> None:
    engine = Engine()
    engine.placement.sync([unit("a", 8), WATCHED])
    engine.placement.sync([WATCHED])
    assert engine.ids == [1, 2, -1, 3, -1, 4]
    assert len([r for r in engine.requests if isinstance(r, AppendMedia)]) == 8


def test_a_span_is_known_by_its_medium_once() -> None:
    engine = Engine()
    cat, dog = clip("cat"), clip("dog")
    engine.placement.sync([Unit(("item", "a"), ((1,), cat, (2,), dog))])
    assert engine.placement.medium_at(SpanId(1)) is None
    assert engine.placement.medium_at(SpanId(4)) is dog
    assert engine.placement.medium_at(SpanId(4)) is None
    assert engine.placement.medium_at(SpanId(2)) is cat


def test_what_was_rolled_back_or_lost_is_known_no_more() -> None:
    engine = Engine()
    one, two = (Unit(("item", name), ((1,), clip(name))) for name in ("one", "two"))
    engine.placement.sync([one, two])
    engine.placement.sync([one])
    assert engine.placement.medium_at(SpanId(4)) is None
    assert engine.placement.medium_at(SpanId(2)) is not None
    engine.placement.sync([one, two])
    engine.placement.lost()
    assert engine.placement.medium_at(SpanId(6)) is None
