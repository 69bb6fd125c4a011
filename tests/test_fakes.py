"""The auto engine keeps the promises of core/api.py, or tests that lean on it prove nothing."""

import pytest
from fakes import FakeEngine, FakeTokenizer, MemoryTransport

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    Closed,
    CloseSequence,
    CloseSpan,
    EngineEvent,
    Failed,
    Generate,
    Generated,
    Heard,
    Interrupt,
    OpenSpan,
    Progress,
    SamplingParams,
    SequenceId,
    SpanClosed,
    SpanId,
    TurnEnded,
)
from sensorium.gateway.client_events import ClearAudio
from sensorium.gateway.ports import EnginePort, TransportClosed
from sensorium.gateway.server_events import AudioCleared

ONE = SequenceId(1)


def open_auto() -> tuple[FakeEngine, list[EngineEvent]]:
    engine = FakeEngine(auto=True)
    events: list[EngineEvent] = []
    port: EnginePort = engine
    port.open(port.new_sequence_id(), events.extend)
    return engine, events


def test_a_clip_is_heard_and_answered() -> None:
    engine, events = open_auto()
    engine.submit(OpenSpan(sequence_id=ONE, span_id=SpanId(1)))
    engine.submit(
        AppendMedia(sequence_id=ONE, span_id=SpanId(1), pts=0, shape=(100,), data=bytes(400))
    )
    engine.submit(CloseSpan(sequence_id=ONE, span_id=SpanId(1)))
    engine.submit(AppendTokens(sequence_id=ONE, span_id=SpanId(2), token_ids=(1, 2, 3)))
    engine.submit(Generate(sequence_id=ONE, span_id=SpanId(3)))
    assert [type(event) for event in events] == [
        Progress,
        Heard,
        SpanClosed,
        *[Generated] * 4,
        TurnEnded,
    ]
    ended = events[-1]
    assert isinstance(ended, TurnEnded)
    assert ended.reason == "stop"
    assert (ended.usage.num_prompt_tokens, ended.usage.num_uncached_tokens) == (5, 3)


def test_a_held_generation_is_interrupted() -> None:
    engine, events = open_auto()
    engine.held = True
    engine.submit(Generate(sequence_id=ONE, span_id=SpanId(1)))
    engine.submit(AppendTokens(sequence_id=ONE, span_id=SpanId(2), token_ids=(1,)))
    engine.submit(Generate(sequence_id=ONE, span_id=SpanId(3)))
    assert [type(event) for event in events] == [Generated]
    engine.submit(Interrupt(sequence_id=ONE))
    ended, dropped = events[1:]
    assert isinstance(dropped, TurnEnded)
    assert isinstance(ended, TurnEnded)
    assert (dropped.span_id, dropped.reason) == (3, "interrupted")
    assert (ended.reason, ended.usage.num_output_tokens) == ("interrupted", 2)
    assert engine.sequences[ONE].num_positions == 2


def test_max_tokens_ends_with_length() -> None:
    engine, events = open_auto()
    sampling = SamplingParams(max_tokens=3)
    engine.submit(Generate(sequence_id=ONE, span_id=SpanId(1), sampling=sampling))
    ended = events[-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.reason, ended.usage.num_output_tokens) == ("length", 3)


def test_a_closed_sequence_is_forgotten() -> None:
    engine, events = open_auto()
    engine.submit(CloseSequence(sequence_id=ONE))
    engine.submit(Generate(sequence_id=ONE, span_id=SpanId(1)))
    assert events == [Closed(sequence_id=ONE)]


def test_a_lost_engine_fails_everyone() -> None:
    engine, events = open_auto()
    engine.lose()
    assert isinstance(events[0], Failed)
    assert engine.info is None


def test_the_tokenizer_round_trips() -> None:
    tokenizer = FakeTokenizer()
    assert tokenizer.decode(tokenizer.encode(" a b\n a ")) == " a b\n a "


async def test_the_transport_delivers_what_was_pushed_before_hanging_up() -> None:
    transport = MemoryTransport()
    transport.push(ClearAudio())
    await transport.send(AudioCleared())
    transport.hang_up()
    assert await transport.receive() == ClearAudio()
    assert await transport.next(AudioCleared) == AudioCleared()
    with pytest.raises(TransportClosed):
        await transport.receive()
    with pytest.raises(TransportClosed):
        await transport.send(AudioCleared())
