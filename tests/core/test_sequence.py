import pytest

from sensorium.core.api import (
    AppendTokens,
    Generate,
    Generated,
    OpenSpan,
    SamplingParams,
    SequenceId,
    SpanId,
    TurnEnded,
)
from sensorium.core.choosing import Chooser
from sensorium.core.sequence import Sequence
from sensorium.core.span import SequenceFault

ONE = SequenceId(1)


def _new(max_positions: int = 100) -> Sequence:
    return Sequence(ONE, tables=[], max_positions=max_positions, order=1)


def _append(sequence: Sequence, span_id: int, *token_ids: int) -> None:
    sequence.put(AppendTokens(sequence_id=ONE, span_id=SpanId(span_id), token_ids=token_ids))
    sequence.settle(lambda sampling: Chooser(sampling=sampling))


def _generate(sequence: Sequence, span_id: int, max_tokens: int = 8) -> None:
    params = SamplingParams(max_tokens=max_tokens)
    sequence.put(Generate(sequence_id=ONE, span_id=SpanId(span_id), sampling=params))
    sequence.settle(lambda sampling: Chooser(sampling=sampling))


def test_span_ids_must_rise_even_after_a_rollback() -> None:
    sequence = _new()
    _append(sequence, 5, 1)
    sequence.roll_back(None)
    with pytest.raises(SequenceFault, match="span ids must rise: got 5 after 5"):
        _append(sequence, 5, 1)


def test_full_context_is_a_fault_that_says_by_how_much() -> None:
    sequence = _new(max_positions=3)
    _append(sequence, 1, 1, 2)
    with pytest.raises(SequenceFault, match="would have 4 positions; the limit is 3") as fault:
        _append(sequence, 2, 3, 4)
    assert fault.value.code == "context_full"


def test_rollback_cuts_at_the_border_of_a_span() -> None:
    sequence = _new()
    _append(sequence, 1, 1, 2)
    _append(sequence, 4, 3, 4)
    _append(sequence, 6, 5)
    sequence.num_computed = 5
    sequence.roll_back(SpanId(4))
    assert (sequence.token_ids, sequence.num_computed) == ([1, 2, 3, 4], 4)
    sequence.roll_back(SpanId(3))
    assert (sequence.token_ids, sequence.num_computed) == ([1, 2], 2)


def test_rollback_through_a_running_generation_keeps_it() -> None:
    sequence = _new()
    _append(sequence, 1, 1)
    _generate(sequence, 2)
    assert sequence.roll_back(SpanId(2)) == []
    assert sequence.generation is not None


def test_generation_counts_what_was_still_to_prefill() -> None:
    sequence = _new()
    _append(sequence, 1, 1, 2, 3)
    sequence.num_computed = 2
    _generate(sequence, 2, max_tokens=1)
    events = sequence.accept(9)
    assert isinstance(events[0], Generated)
    assert isinstance(events[1], TurnEnded)
    usage = events[1].usage
    assert (usage.num_prompt_tokens, usage.num_uncached_tokens, usage.num_output_tokens) == (
        3,
        1,
        1,
    )


def test_generation_on_cached_positions_passes_the_last_one_again() -> None:
    sequence = _new()
    _append(sequence, 1, 1, 2, 3)
    sequence.num_computed = 3
    _generate(sequence, 2)
    assert sequence.num_due == 1
    assert sequence.generation is not None
    assert sequence.generation.num_uncached_tokens == 0


def test_dormant_sequence_wakes_when_something_is_added() -> None:
    sequence = _new()
    _append(sequence, 1, 1, 2, 3)
    sequence.dormant = True
    assert sequence.num_due == 0
    _append(sequence, 2, 4)
    assert sequence.num_due == 4


def test_content_for_a_finished_span_is_ignored() -> None:
    sequence = _new()
    sequence.put(OpenSpan(sequence_id=ONE, span_id=SpanId(1)))
    sequence.extend(SpanId(1), (1, 2))
    sequence.finish(SpanId(1))
    sequence.extend(SpanId(1), (3,))
    sequence.settle(lambda sampling: Chooser(sampling=sampling))
    sequence.extend(SpanId(1), (4,))
    sequence.settle(lambda sampling: Chooser(sampling=sampling))
    assert sequence.token_ids == [1, 2]
