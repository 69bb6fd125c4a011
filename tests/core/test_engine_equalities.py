"""However a sequence came to hold its positions, it goes on as if they had come at once.

Random schedules over several sequences in one small pool: appended in pieces, beside others,
rolled back, cut, forked, interrupted, preempted. The reference is a fresh engine with the same
positions in one piece. The pool is empty after each.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from muse_checkpoint import cached_tiny_muse
from muse_rig import load_muse
from tiny_model import append, generate, ids_of, open_sequence, prompt, run, tiny_engine, tiny_model

from sensorium.core.api import (
    CloseSequence,
    EngineEvent,
    Failed,
    Interrupt,
    OpenSequence,
    OpenSpan,
    Rollback,
    SequenceId,
    SpanId,
)
from sensorium.core.engine import Engine

LLAMAS = {
    "full": (None, None),
    "hybrid": (5, None, 5, 5),
    "window": (9, 9),
}
KINDS = ("tokens", "rows", "generate", "halt", "step", "steps", "back", "cut", "fork")
ACTION = st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 40))
Piece = tuple[int, ...] | torch.Tensor
NUM_BLOCKS = 40


@cache
def model_of(name: str) -> Any:
    """A decoder by the name of what its layers see; "muse" has experts as well."""
    return load_muse(cached_tiny_muse()) if name == "muse" else tiny_model(windows=LLAMAS[name])


def engine_of(name: str, **config: Any) -> Engine:
    """Muse runs position by position: a router's near-tie must not fall either way."""
    return tiny_engine(model=model_of(name), batch_invariant=name == "muse", **config)


def rows_of(name: str, seed: int, count: int) -> torch.Tensor:
    """Draw embedding rows."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, model_of(name).shape.width, generator=generator)


def feed(engine: Engine, sequence: int, span: int, piece: Piece) -> None:
    """Append a span of tokens or rows."""
    if isinstance(piece, tuple):
        append(engine, sequence, span, piece)
        return
    sequence_id, span_id = SequenceId(sequence), SpanId(span)
    engine.submit(OpenSpan(sequence_id=sequence_id, span_id=span_id))
    for begin in range(0, len(piece), 3):
        engine.extend_span(sequence_id, span_id, piece[begin : begin + 3])
    engine.finish_span(sequence_id, span_id)


def fresh_answer(name: str, pieces: list[Piece], max_tokens: int = 5) -> tuple[int, ...]:
    """What an engine with room for all says after these positions, given at once."""
    engine = engine_of(name, num_blocks=400, max_step_tokens=256)
    open_sequence(engine, 1)
    for span, piece in enumerate(pieces, 1):
        feed(engine, 1, span, piece)
    generate(engine, 1, len(pieces) + 1, max_tokens)
    return ids_of(run(engine), 1)


@dataclass
class _Line:
    """What one sequence holds, by span."""

    pieces: dict[int, Piece] = field(default_factory=dict)
    next_span: int = 1

    @property
    def length(self) -> int:
        return sum(map(len, self.pieces.values()))


class _Schedule:
    """Drives one engine at random and keeps account of what each sequence holds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.engine = engine_of(name, num_blocks=NUM_BLOCKS, max_step_tokens=12, window_slack=3)
        self.events: list[EngineEvent] = []
        self.lines: dict[int, _Line] = {}
        for sequence in range(4):
            self.lines[sequence] = _Line()
            open_sequence(self.engine, sequence)

    def act(self, kind: str, sequence: int, amount: int) -> None:
        line, engine = self.lines[sequence], self.engine
        sequence_id, span = SequenceId(sequence), line.next_span
        line.next_span += 1
        if kind in ("tokens", "rows") and line.length + amount <= 60 and amount:
            piece = (
                prompt(amount, amount) if kind == "tokens" else rows_of(self.name, amount, amount)
            )
            line.pieces[span] = piece
            feed(engine, sequence, span, piece)
        elif kind == "generate" and 0 < line.length <= 70:
            expected = fresh_answer(self.name, list(line.pieces.values()))
            generate(engine, sequence, span, 5)
            events = run(engine)
            self.events += events
            assert ids_of(events, sequence) == expected
            line.pieces[span] = expected
        elif kind == "halt" and 0 < line.length <= 70:
            self.halt(sequence, span, amount % 8)
        elif kind == "step":
            self.events += engine.step(0.0)
        elif kind == "steps":
            self.events += run(engine)
        elif kind == "back":
            keep = max((s for s in line.pieces if s <= amount), default=0)
            line.pieces = {s: p for s, p in line.pieces.items() if s <= keep}
            engine.submit(Rollback(sequence_id=sequence_id, keep_through=SpanId(keep)))
        elif kind == "cut":
            self.events += run(engine)
            position = line.length - line.length * amount // 50
            engine.submit(
                Rollback(sequence_id=sequence_id, keep_through=SpanId(span), position=position)
            )
            self.shorten(line, position)
        elif kind == "fork":
            self.fork(sequence, amount)

    def halt(self, sequence: int, span: int, num_steps: int) -> None:
        """Interrupt an answer; what was said so far is the beginning of the whole one."""
        line = self.lines[sequence]
        generate(self.engine, sequence, span, 9)
        events = [event for _ in range(num_steps) for event in self.engine.step(0.0)]
        self.engine.submit(Interrupt(sequence_id=SequenceId(sequence)))
        events += run(self.engine)
        self.events += events
        said = ids_of(events, sequence)
        if said:
            assert said == fresh_answer(self.name, list(line.pieces.values()), len(said))
            line.pieces[span] = said

    def fork(self, sequence: int, amount: int) -> None:
        """Replace the next sequence by a fork of this one."""
        self.events += run(self.engine)
        line, child = self.lines[sequence], (sequence + 1) % 4
        through = max((s for s in line.pieces if s <= amount), default=0)
        self.engine.submit(CloseSequence(sequence_id=SequenceId(child)))
        self.engine.submit(
            OpenSequence(
                sequence_id=SequenceId(child),
                parent=SequenceId(sequence),
                through=SpanId(through),
            )
        )
        pieces = {s: p for s, p in line.pieces.items() if s <= through}
        self.lines[child] = _Line(pieces, line.next_span)

    @staticmethod
    def shorten(line: _Line, position: int) -> None:
        for span, piece in list(line.pieces.items()):
            line.pieces[span] = piece[: max(position, 0)]
            position -= len(piece)
            if not len(line.pieces[span]):
                del line.pieces[span]

    def finish(self) -> None:
        """Let every sequence answer, then close them all."""
        for sequence, line in self.lines.items():
            if line.length:
                generate(self.engine, sequence, line.next_span, 5)
        events = run(self.engine)
        for sequence, line in self.lines.items():
            if line.length:
                expected = fresh_answer(self.name, list(line.pieces.values()))
                assert ids_of(events, sequence) == expected
            self.engine.submit(CloseSequence(sequence_id=SequenceId(sequence)))
        events += run(self.engine)
        assert not [e for e in self.events + events if isinstance(e, Failed)]
        assert self.engine.stats().num_free_blocks == NUM_BLOCKS


@pytest.mark.parametrize("name", LLAMAS)
@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(ACTION, max_size=30))
def test_any_schedule_goes_on_like_one_piece(
    name: str, actions: list[tuple[str, int, int]]
) -> None:
    schedule = _Schedule(name)
    for action in actions:
        schedule.act(*action)
    schedule.finish()


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(ACTION, min_size=4, max_size=14))
def test_muse_goes_on_like_one_piece(actions: list[tuple[str, int, int]]) -> None:
    schedule = _Schedule("muse")
    for action in actions:
        schedule.act(*action)
    schedule.finish()


@pytest.mark.parametrize("name", LLAMAS)
@pytest.mark.parametrize("position", range(1, 12))
def test_a_fork_does_not_see_its_parent_rewrite_what_they_shared(name: str, position: int) -> None:
    engine = engine_of(name, num_blocks=NUM_BLOCKS)
    whole, other = prompt(1, 12), prompt(2, 9)
    open_sequence(engine, 1)
    feed(engine, 1, 1, whole)
    run(engine)
    engine.submit(OpenSequence(sequence_id=SequenceId(2), parent=SequenceId(1)))
    engine.submit(Rollback(sequence_id=SequenceId(1), keep_through=SpanId(1), position=position))
    feed(engine, 1, 2, other)
    run(engine)
    generate(engine, 1, 3, 5)
    generate(engine, 2, 2, 5)
    events = run(engine)
    assert ids_of(events, 1) == fresh_answer(name, [whole[:position], other])
    assert ids_of(events, 2) == fresh_answer(name, [whole])


@pytest.mark.parametrize("name", LLAMAS)
def test_a_fork_computes_only_what_is_new(name: str) -> None:
    engine = engine_of(name, num_blocks=NUM_BLOCKS)
    open_sequence(engine, 1)
    feed(engine, 1, 1, prompt(1, 14))
    run(engine)
    engine.submit(OpenSequence(sequence_id=SequenceId(2), parent=SequenceId(1)))
    engine.step(0.0)
    # Three full blocks of four are shared: two positions were left, and the step computed them.
    assert engine.num_to_prefill(SequenceId(2)) == 0
    free = engine.stats().num_free_blocks
    num_groups = len(engine._runner.cache.groups)
    engine.submit(CloseSequence(sequence_id=SequenceId(2)))
    engine.step(0.0)
    assert engine.stats().num_free_blocks == free + num_groups
