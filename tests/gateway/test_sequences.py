"""The books of a session's sequences: refusals, and that nothing stays open."""

import asyncio

from fakes import FakeEngine

from sensorium.core.api import (
    Closed,
    CloseSequence,
    EngineEvent,
    Failed,
    Interrupt,
    OpenSequence,
    SequenceId,
)
from sensorium.gateway.metrics import Metrics
from sensorium.gateway.sequences import Sequences

ONE = SequenceId(1)
OPEN, INTERRUPT = OpenSequence(sequence_id=ONE), Interrupt(sequence_id=ONE)
CLOSE = CloseSequence(sequence_id=ONE)


def rig() -> tuple[FakeEngine, list[EngineEvent], Sequences]:
    engine = FakeEngine()
    heard: list[EngineEvent] = []
    return engine, heard, Sequences(engine, Metrics(engine), heard.extend)


def test_requests_and_events_pass() -> None:
    engine, heard, sequences = rig()
    assert sequences.submit([OPEN, INTERRUPT, CLOSE]) == []
    engine.emit(Closed(sequence_id=ONE))
    assert engine.requests == [OPEN, INTERRUPT, CLOSE]
    assert heard == [Closed(sequence_id=ONE)]


def test_refused_opening_is_a_failure_and_drops_what_follows() -> None:
    engine, _, sequences = rig()
    engine.busy = True
    [failed] = sequences.submit([OPEN])
    assert isinstance(failed, Failed)
    assert (failed.sequence_id, failed.code) == (ONE, "engine_busy")
    engine.busy = False
    assert sequences.submit([INTERRUPT]) == []
    assert engine.requests == []


def test_refused_request_fails_its_sequence_and_closes_it_once_there_is_room() -> None:
    engine, heard, sequences = rig()
    sequences.submit([OPEN])
    engine.busy = True
    [failed] = sequences.submit([INTERRUPT])
    assert isinstance(failed, Failed)
    engine.busy = False
    sequences.submit([])
    engine.emit(Closed(sequence_id=ONE))
    assert engine.requests == [OPEN, CLOSE]
    assert heard == []  # its session has been told already


def test_offer_tells_whether_the_way_was_free() -> None:
    engine, _, sequences = rig()
    sequences.submit([OPEN])
    engine.busy = True
    assert not sequences.offer(INTERRUPT)
    engine.busy = False
    assert sequences.offer(INTERRUPT)
    assert engine.requests == [OPEN, INTERRUPT]


async def test_close_all_closes_what_the_session_left_open() -> None:
    engine, _, sequences = rig()
    sequences.submit([OPEN])
    await sequences.close_all(1.0)
    assert engine.requests == [OPEN, CLOSE]


async def test_close_all_does_not_repeat_what_the_session_did() -> None:
    engine, _, sequences = rig()
    sequences.submit([OPEN, CLOSE])
    await sequences.close_all(1.0)
    assert engine.requests == [OPEN, CLOSE]


async def test_failed_sequence_needs_no_close() -> None:
    engine, heard, sequences = rig()
    sequences.submit([OPEN])
    failed = Failed(sequence_id=ONE, code="engine_lost", message="gone")
    engine.emit(failed)
    await asyncio.sleep(0)
    await sequences.close_all(1.0)
    assert heard == [failed]
    assert engine.requests == [OPEN]


async def test_close_all_gives_up_on_a_way_that_stays_full() -> None:
    engine, _, sequences = rig()
    sequences.submit([OPEN])
    engine.busy = True
    await sequences.close_all(0.0)
    assert engine.requests == [OPEN]
