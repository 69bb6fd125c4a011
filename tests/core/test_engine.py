"""What must not change a token, and what must not outlive a request."""

from dataclasses import replace

import pytest
import torch
from tiny_model import (
    MAX_POSITIONS,
    WIDTH,
    answer,
    append,
    generate,
    ids_of,
    open_sequence,
    prompt,
    run,
    tiny_engine,
    tiny_model,
)

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

ONE = SequenceId(1)


def _ended(events: list[EngineEvent]) -> list[TurnEnded]:
    return [e for e in events if isinstance(e, TurnEnded)]


def _all_blocks_free(engine: Engine) -> bool:
    return engine.stats().num_free_blocks == 100


def _opened_span(engine: Engine, span_id: int) -> SpanId:
    engine.submit(OpenSpan(sequence_id=ONE, span_id=SpanId(span_id)))
    return SpanId(span_id)


# --- equalities ---------------------------------------------------------------------------------


def test_answers_differ_between_prompts() -> None:
    assert len({answer(prompt(seed, 20)) for seed in range(6)}) == 6


@pytest.mark.parametrize("max_step_tokens", [1, 7, 16])
def test_chunked_prefill_equals_whole(max_step_tokens: int) -> None:
    assert answer(prompt(1, 61), max_step_tokens=max_step_tokens) == answer(prompt(1, 61))


def test_cached_equals_recomputed() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 30))
    generate(engine, 1, 2, 8)
    first = ids_of(run(engine), 1)
    append(engine, 1, 3, prompt(2, 9))
    generate(engine, 1, 4, 8)
    second = ids_of(run(engine), 1)
    assert second == answer(prompt(1, 30) + first + prompt(2, 9))


def test_alone_equals_in_a_batch() -> None:
    engine = tiny_engine()
    lengths = (1, 4, 5, 16, 33, 60)
    for i, length in enumerate(lengths):
        open_sequence(engine, i)
        append(engine, i, 1, prompt(i, length))
        generate(engine, i, 2, 12)
    events = run(engine)
    for i, length in enumerate(lengths):
        assert ids_of(events, i) == answer(prompt(i, length), 12)


def test_preempted_equals_undisturbed() -> None:
    engine = tiny_engine(num_blocks=20)
    for i in range(4):
        open_sequence(engine, i)
        append(engine, i, 1, prompt(i, 25))
        generate(engine, i, 2, 20)
    events = run(engine)
    for i in range(4):
        assert ids_of(events, i) == answer(prompt(i, 25), 20)


def test_idle_sequence_gives_its_blocks_to_a_younger_one_and_recovers() -> None:
    engine = tiny_engine(num_blocks=20)
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 60))
    run(engine)
    open_sequence(engine, 2)
    append(engine, 2, 1, prompt(2, 60))
    generate(engine, 2, 2, 8)
    assert ids_of(run(engine), 2) == answer(prompt(2, 60))
    generate(engine, 1, 2, 8)
    events = run(engine)
    assert ids_of(events, 1) == answer(prompt(1, 60))
    assert _ended(events)[0].usage.num_uncached_tokens == 60


def test_span_extended_in_pieces_equals_whole() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 10))
    span = _opened_span(engine, 2)
    words = prompt(2, 23)
    for piece in (words[:1], words[1:9], words[9:10], words[10:]):
        engine.extend_span(ONE, span, piece)
        run(engine)
        assert engine.num_to_prefill(ONE) == 0
    engine.finish_span(ONE, span)
    append(engine, 1, 3, prompt(3, 4))
    generate(engine, 1, 4, 8)
    events = run(engine)
    assert ids_of(events, 1) == answer(prompt(1, 10) + words + prompt(3, 4))
    assert _ended(events)[0].usage.num_uncached_tokens == 4


def test_rows_equal_the_tokens_they_embed() -> None:
    model = tiny_model()
    engine = tiny_engine(model=model)
    words = prompt(2, 11)
    open_sequence(engine, 1)
    span = _opened_span(engine, 1)
    rows = model.embed(torch.tensor(words))
    engine.extend_span(ONE, span, rows[:3])
    engine.extend_span(ONE, span, words[3:6])
    run(engine)
    engine.extend_span(ONE, span, rows[6:])
    engine.finish_span(ONE, span)
    generate(engine, 1, 2, 8)
    assert ids_of(run(engine), 1) == answer(words)


def test_rows_survive_preemption() -> None:
    model = tiny_model()
    engine = tiny_engine(model=model, num_blocks=20)
    words = prompt(2, 40)
    open_sequence(engine, 1)
    span = _opened_span(engine, 1)
    engine.extend_span(ONE, span, model.embed(torch.tensor(words)))
    engine.finish_span(ONE, span)
    run(engine)
    open_sequence(engine, 2)
    append(engine, 2, 1, prompt(3, 60))
    run(engine)
    generate(engine, 1, 2, 8)
    assert ids_of(run(engine), 1) == answer(words)


def test_rollback_then_other_text_equals_fresh() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 13))
    append(engine, 1, 2, prompt(2, 30))
    generate(engine, 1, 3, 5)
    run(engine)
    engine.submit(Rollback(sequence_id=ONE, keep_through=SpanId(1)))
    append(engine, 1, 4, prompt(3, 6))
    generate(engine, 1, 5, 8)
    events = run(engine)
    assert ids_of(events, 1) == answer(prompt(1, 13) + prompt(3, 6))
    assert _ended(events)[0].usage.num_uncached_tokens == 6


def test_generating_again_from_the_same_positions_repeats_the_answer() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 16))
    for span_id in (2, 3):
        generate(engine, 1, span_id, 8)
        assert ids_of(run(engine), 1) == answer(prompt(1, 16))
        engine.submit(Rollback(sequence_id=ONE, keep_through=SpanId(1)))


def test_seeded_draws_repeat_whatever_runs_beside_them() -> None:
    drawn = []
    for others in (0, 3):
        engine = tiny_engine()
        for i in range(1, others + 2):
            open_sequence(engine, i)
            append(engine, i, 1, prompt(1, 9))
            generate(engine, i, 2, 12, temperature=1.5, seed=i)
        events = run(engine)
        drawn.append(ids_of(events, 1))
    assert drawn[0] == drawn[1]
    assert ids_of(events, 2) != drawn[0]


def test_steps_are_deterministic_without_a_seed_of_the_request() -> None:
    def draw() -> tuple[int, ...]:
        engine = tiny_engine(seed=3)
        open_sequence(engine, 1)
        append(engine, 1, 1, prompt(1, 9))
        generate(engine, 1, 2, 12, temperature=1.5)
        return ids_of(run(engine), 1)

    assert draw() == draw()


# --- order of requests --------------------------------------------------------------------------


def test_requests_behind_an_open_span_wait_until_it_is_finished() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    span = _opened_span(engine, 1)
    engine.extend_span(ONE, span, (1, 2, 3))
    append(engine, 1, 2, (4,))
    generate(engine, 1, 3, 4)
    assert run(engine) == []
    engine.extend_span(ONE, span, (5,))
    engine.finish_span(ONE, span)
    assert ids_of(run(engine), 1) == answer((1, 2, 3, 5, 4), 4)


def test_span_behind_a_generation_keeps_what_it_hears() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 9))
    generate(engine, 1, 2, 6)
    span = _opened_span(engine, 3)
    engine.extend_span(ONE, span, (7, 8))
    engine.finish_span(ONE, span)
    generate(engine, 1, 4, 6)
    first = answer(prompt(1, 9), 6)
    assert ids_of(run(engine), 1) == first + answer(prompt(1, 9) + first + (7, 8), 6)


def test_waiting_positions_are_prefilled_in_the_next_step() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    span = _opened_span(engine, 1)
    engine.extend_span(ONE, span, prompt(1, 30))
    assert engine.has_work()
    engine.step(0.0)
    assert engine.num_to_prefill(ONE) == 0
    assert not engine.has_work()


def test_usage_counts_prompt_uncached_and_output() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 20))
    run(engine)
    append(engine, 1, 2, prompt(2, 5))
    generate(engine, 1, 3, 7)
    usage = _ended(run(engine))[0].usage
    assert (usage.num_prompt_tokens, usage.num_uncached_tokens) == (25, 5)
    assert usage.num_output_tokens == 7


def test_stop_token_ends_the_span_and_is_not_part_of_it() -> None:
    whole = answer(prompt(1, 9), 8)
    at = next(i for i in range(2, 8) if whole[i] not in whole[:i])
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 9))
    generate(engine, 1, 2, 8, stop_token_ids=(whole[at],))
    append(engine, 1, 3, (5,))
    generate(engine, 1, 4, 4)
    events = run(engine)
    assert [e.reason for e in _ended(events)] == ["stop", "length"]
    assert _ended(events)[0].usage.num_output_tokens == at
    assert ids_of(events, 1) == whole[:at] + answer(prompt(1, 9) + whole[:at] + (5,), 4)


# --- interruptions ------------------------------------------------------------------------------


def _generating(engine: Engine) -> None:
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 9))
    generate(engine, 1, 2, 50)
    for _ in range(4):
        engine.step(0.0)


def test_interrupt_keeps_what_was_generated() -> None:
    engine = tiny_engine()
    _generating(engine)
    engine.submit(Interrupt(sequence_id=ONE))
    ended = _ended(run(engine))
    assert [e.reason for e in ended] == ["interrupted"]
    assert ended[0].usage.num_output_tokens == 4
    append(engine, 1, 3, (5,))
    generate(engine, 1, 4, 4)
    said = answer(prompt(1, 9), 4)
    assert ids_of(run(engine), 1) == answer((*prompt(1, 9), *said, 5), 4)


def test_interrupt_drops_requests_that_wait_behind_the_generation() -> None:
    engine = tiny_engine()
    _generating(engine)
    append(engine, 1, 3, (5, 6))
    generate(engine, 1, 4, 4)
    engine.submit(Interrupt(sequence_id=ONE))
    assert [e.span_id for e in _ended(run(engine))] == [2, 4]


def test_interrupt_without_a_generation_does_nothing() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    span = _opened_span(engine, 1)
    engine.submit(Interrupt(sequence_id=ONE))
    engine.extend_span(ONE, span, (1, 2))
    engine.finish_span(ONE, span)
    generate(engine, 1, 2, 4)
    assert ids_of(run(engine), 1) == answer((1, 2), 4)


def test_interrupt_ends_a_generation_that_still_waits() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    span = _opened_span(engine, 1)
    generate(engine, 1, 2, 4)
    engine.submit(Interrupt(sequence_id=ONE))
    ended = _ended(run(engine))
    assert [(e.span_id, e.reason) for e in ended] == [(2, "interrupted")]
    engine.extend_span(ONE, span, (1,))
    engine.finish_span(ONE, span)
    run(engine)
    assert engine.stats().num_sequences == 1


def test_rollback_ends_a_running_generation_and_ignores_a_dropped_span() -> None:
    engine = tiny_engine()
    _generating(engine)
    span = _opened_span(engine, 3)
    engine.submit(Rollback(sequence_id=ONE, keep_through=SpanId(1)))
    engine.extend_span(ONE, span, (1, 2))
    engine.finish_span(ONE, span)
    generate(engine, 1, 4, 6)
    events = run(engine)
    assert [(e.span_id, e.reason) for e in _ended(events)] == [(2, "interrupted"), (4, "length")]
    assert ids_of(events, 1) == answer(prompt(1, 9), 6)


def test_rollback_of_an_open_span_lets_the_next_request_go_on() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, 9))
    span = _opened_span(engine, 2)
    engine.extend_span(ONE, span, (1, 2, 3))
    run(engine)
    engine.submit(Rollback(sequence_id=ONE, keep_through=SpanId(1)))
    generate(engine, 1, 3, 6)
    assert ids_of(run(engine), 1) == answer(prompt(1, 9), 6)


def test_rollback_to_nothing_frees_every_block() -> None:
    engine = tiny_engine()
    _generating(engine)
    engine.submit(Rollback(sequence_id=ONE, keep_through=None))
    run(engine)
    assert _all_blocks_free(engine)


def test_close_ends_the_generation_and_is_the_last_event() -> None:
    engine = tiny_engine()
    _generating(engine)
    engine.submit(CloseSequence(sequence_id=ONE))
    append(engine, 1, 3, (5,))
    events = run(engine)
    assert events[-1] == Closed(sequence_id=ONE)
    assert len(events) == 2
    assert _all_blocks_free(engine)
    assert engine.stats().num_sequences == 0


# --- limits and faults --------------------------------------------------------------------------


def _failed(events: list[EngineEvent]) -> list[tuple[int, str]]:
    return [(e.sequence_id, e.code) for e in events if isinstance(e, Failed)]


def test_appending_past_the_context_fails() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, MAX_POSITIONS))
    assert run(engine) == []
    append(engine, 1, 2, (1,))
    assert _failed(run(engine)) == [(1, "context_full")]
    assert _all_blocks_free(engine)


def test_generating_to_the_limit_ends_with_length() -> None:
    engine = tiny_engine()
    open_sequence(engine, 1)
    append(engine, 1, 1, prompt(1, MAX_POSITIONS - 3))
    generate(engine, 1, 2, 50)
    ended = _ended(run(engine))[0]
    assert (ended.reason, ended.usage.num_output_tokens) == ("length", 3)
    generate(engine, 1, 3, 50)
    ended = _ended(run(engine))[0]
    assert (ended.reason, ended.usage.num_output_tokens) == ("length", 0)


def test_what_the_cache_can_never_hold_fails_alone() -> None:
    engine = tiny_engine(num_blocks=20)
    assert engine.max_positions == 80
    for i in (1, 2):
        open_sequence(engine, i)
    append(engine, 1, 1, prompt(1, 81))
    append(engine, 2, 1, prompt(2, 70))
    generate(engine, 2, 2, 8)
    events = run(engine)
    assert _failed(events) == [(1, "context_full")]
    assert ids_of(events, 2) == answer(prompt(2, 70))


@pytest.mark.parametrize(
    "rows",
    [torch.ones(3, WIDTH + 1), torch.ones(WIDTH), torch.full((2, WIDTH), torch.nan)],
    ids=["too wide", "one axis", "not finite"],
)
def test_bad_rows_fail_their_sequence_alone(rows: torch.Tensor) -> None:
    engine = tiny_engine()
    for i in (1, 2):
        open_sequence(engine, i)
    append(engine, 2, 1, prompt(2, 20))
    generate(engine, 2, 2, 8)
    span = _opened_span(engine, 1)
    engine.extend_span(ONE, span, rows)
    events = run(engine)
    assert _failed(events) == [(1, "bad_request")]
    assert ids_of(events, 2) == answer(prompt(2, 20))


def test_output_that_is_not_finite_fails_its_sequence_and_spoils_no_later_one() -> None:
    model = tiny_model()
    model.embedding[5] = torch.nan
    engine = tiny_engine(model=model, num_blocks=12)
    healthy = [tuple(t for t in prompt(i, 30) if t != 5) for i in (2, 3)]
    for i in (1, 2):
        open_sequence(engine, i)
    append(engine, 1, 1, (5,) * 13)
    append(engine, 2, 1, healthy[0][:10])
    for i in (1, 2):
        generate(engine, i, 2, 8)
    events = run(engine)
    assert _failed(events) == [(1, "internal")]
    assert ids_of(events, 2) == answer(healthy[0][:10])
    open_sequence(engine, 3)
    append(engine, 3, 1, healthy[1])
    generate(engine, 3, 2, 8)
    assert ids_of(run(engine), 3) == answer(healthy[1])


def test_bad_requests_fail_with_a_reason() -> None:
    engine = tiny_engine()
    for i in range(1, 6):
        open_sequence(engine, i)
    append(engine, 1, 1, (97,))
    generate(engine, 2, 1, 4)
    append(engine, 3, 2, (1,))
    append(engine, 3, 2, (1,))
    append(engine, 4, 1, (1,))
    generate(engine, 4, 2, 4, top_p=0.0)
    open_sequence(engine, 5)
    events = run(engine)
    assert _failed(events) == [(i, "bad_request") for i in (1, 2, 3, 4, 5)]
    messages = [e.message for e in events if isinstance(e, Failed)]
    assert messages[0] == "token ids must be from 0 to 96"
    assert _all_blocks_free(engine)


def test_a_sequence_past_the_limit_is_refused() -> None:
    engine = tiny_engine(max_sequences=1)
    open_sequence(engine, 1)
    open_sequence(engine, 2)
    append(engine, 2, 1, (1,))
    assert _failed(run(engine)) == [(2, "engine_busy")]
    assert engine.stats().num_sequences == 1


def test_unexpected_fault_is_logged_and_ends_one_sequence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = tiny_engine()
    for i in (1, 2):
        open_sequence(engine, i)
        append(engine, i, 1, prompt(i, 9))
    engine.extend_span(ONE, SpanId(1), "nonsense")  # type: ignore[arg-type]  # that is the fault
    generate(engine, 2, 2, 8)
    events = run(engine)
    assert _failed(events) == [(1, "internal")]
    assert ids_of(events, 2) == answer(prompt(2, 9))
    assert "sequence 1 failed" in caplog.text


@pytest.mark.parametrize("temperature", [0.0, 3.0])
def test_placeholders_are_neither_taken_nor_generated(temperature: float) -> None:
    model = tiny_model()
    likeliest = answer(prompt(3, 9), 1)[0]
    model.shape = replace(model.shape, placeholder_ids=(likeliest, 96))
    engine = tiny_engine(model=model)
    for i in (1, 2):
        open_sequence(engine, i)
    append(engine, 1, 1, (5, 96, 7))
    append(engine, 2, 1, prompt(3, 9))
    generate(engine, 2, 2, 100, temperature=temperature)
    events = run(engine)
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert failed.message == "id 96 stands for a slot, which needs an embedding row"
    assert len(ids_of(events, 2)) == 100
    assert {likeliest, 96}.isdisjoint(ids_of(events, 2))
