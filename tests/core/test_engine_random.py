"""After any requests in any order, sequences come to rest and every block comes back."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import append, generate, open_sequence, prompt, run, tiny_engine

from sensorium.core.api import (
    Closed,
    CloseSequence,
    EngineEvent,
    Failed,
    Interrupt,
    OpenSpan,
    Rollback,
    SequenceId,
    SpanId,
    TurnEnded,
)
from sensorium.core.engine import Engine

NUM_BLOCKS = 24
KINDS = ("append", "span", "extend", "finish", "generate", "interrupt", "rollback", "step")
ACTION = st.tuples(st.sampled_from(KINDS), st.integers(1, 4), st.integers(0, 40))


class _Caller:
    """Posts requests as a session would: span ids rise, spans are finished at some time."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.events: list[EngineEvent] = []
        self.num_generations = 0
        self.next_span = 1
        self.last_media: dict[int, SpanId] = {}
        for sequence_id in range(1, 5):
            open_sequence(engine, sequence_id)

    def act(self, kind: str, sequence: int, amount: int) -> None:
        sequence_id, span_id = SequenceId(sequence), SpanId(self.next_span)
        media = self.last_media.get(sequence, SpanId(0))
        self.next_span += 1
        match kind:
            case "append":
                append(self.engine, sequence, span_id, prompt(amount, amount))
            case "span":
                self.engine.submit(OpenSpan(sequence_id=sequence_id, span_id=span_id))
                self.last_media[sequence] = span_id
            case "extend":
                self.engine.extend_span(sequence_id, media, prompt(amount, amount))
            case "finish":
                self.engine.finish_span(sequence_id, media)
            case "generate":
                generate(self.engine, sequence, span_id, 1 + amount % 9)
                self.num_generations += 1
            case "interrupt":
                self.engine.submit(Interrupt(sequence_id=sequence_id))
            case "rollback":
                keep = SpanId(max(self.next_span - amount, 0)) if amount else None
                self.engine.submit(Rollback(sequence_id=sequence_id, keep_through=keep))
            case _:
                self.events += self.engine.step(0.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTION, max_size=40))
def test_every_block_returns_and_every_generation_ends(actions: list[tuple[str, int, int]]) -> None:
    engine = tiny_engine(num_blocks=NUM_BLOCKS, max_step_tokens=16)
    caller = _Caller(engine)
    for action in actions:
        caller.act(*action)
    events = caller.events + run(engine)
    failed = {e.sequence_id for e in events if isinstance(e, Failed)}
    for sequence_id in range(1, 5):
        engine.submit(CloseSequence(sequence_id=SequenceId(sequence_id)))
    events += run(engine)
    closed = {e.sequence_id for e in events if isinstance(e, Closed)}
    ended = [(e.sequence_id, e.span_id) for e in events if isinstance(e, TurnEnded)]
    assert closed | failed == {1, 2, 3, 4}
    assert not closed & failed
    assert len(ended) == len(set(ended))
    assert len(ended) <= caller.num_generations
    assert failed or len(ended) == caller.num_generations
    assert engine.stats().num_free_blocks == NUM_BLOCKS
    assert engine.stats().num_sequences == 0
