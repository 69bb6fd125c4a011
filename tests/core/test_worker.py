"""The worker with a real child process that needs no weights: life, death and back-pressure."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import stub_engine
from stub_engine import BROKEN, ENDLESS, FAULTY

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    Closed,
    CloseSequence,
    CloseSpan,
    EngineBusy,
    EngineEvent,
    EngineRequest,
    Failed,
    Generate,
    Generated,
    Heard,
    OpenSpan,
    SamplingParams,
    SequenceId,
    SpanClosed,
    SpanId,
    TurnEnded,
)
from sensorium.core.child import Child, launch_process, launch_thread
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import CoreError, ModelNotFound
from sensorium.core.ipc import MAX_FRAME_BYTES
from sensorium.core.worker import MAX_OUTGOING_BYTES, EngineWorker
from sensorium.gateway.ports import EnginePort

STUB = (sys.executable, stub_engine.__file__)
ONE, TWO = SpanId(1), SpanId(2)


async def launch_stub(sock: socket.socket) -> Child:
    return await launch_process(sock, STUB)


async def launch_stub_thread(sock: socket.socket) -> Child:
    return await launch_thread(sock, stub_engine.load)


def worker_of(decoder: str = "stub", **settings: Any) -> EngineWorker:
    launch = settings.pop("launch", launch_stub)
    return EngineWorker(ModelsConfig(decoder=decoder), EngineConfig(**settings), launch=launch)


@contextlib.asynccontextmanager
async def running(worker: EngineWorker) -> AsyncIterator[EngineWorker]:
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await worker.wait_ready()
        try:
            yield worker
        finally:
            await worker.stop()


def submit_all(worker: EnginePort, requests: list[EngineRequest]) -> None:
    for request in requests:
        worker.submit(request)


class Client:
    """One sequence: what is submitted for it and what has come back."""

    def __init__(self, worker: EnginePort) -> None:
        self.worker = worker
        self.id = worker.new_sequence_id()
        self.events: list[EngineEvent] = []
        self._changed = asyncio.Event()
        worker.open(self.id, self._on_events)

    def generate(self, max_tokens: int = 8) -> None:
        self.worker.submit(AppendTokens(sequence_id=self.id, span_id=ONE, token_ids=(5, 6)))
        sampling = SamplingParams(max_tokens=max_tokens)
        self.worker.submit(Generate(sequence_id=self.id, span_id=TWO, sampling=sampling))

    async def wait_for(self, kind: type[EngineEvent]) -> EngineEvent:
        while True:
            for event in self.events:
                if isinstance(event, kind):
                    return event
            self._changed.clear()
            await self._changed.wait()

    def _on_events(self, events: list[EngineEvent]) -> None:
        self.events += events
        self._changed.set()


@pytest.mark.parametrize("launch", [launch_stub, launch_stub_thread])
async def test_a_turn_goes_there_and_back(launch: Any) -> None:
    async with running(worker_of(launch=launch)) as worker:
        client = Client(worker)
        client.generate()
        await client.wait_for(TurnEnded)
        assert client.events[0] == Generated(sequence_id=client.id, span_id=TWO, token_ids=(5, 6))


async def test_sound_goes_through_the_pool_and_comes_back_as_words() -> None:
    async with running(worker_of()) as worker:
        client = Client(worker)
        worker.submit(OpenSpan(sequence_id=client.id, span_id=ONE))
        for second in range(3):
            request = AppendMedia(
                sequence_id=client.id,
                span_id=ONE,
                pts=16_000 * second,
                shape=(16_000,),
                data=bytes(64_000),
            )
            worker.submit(request)
        worker.submit(CloseSpan(sequence_id=client.id, span_id=ONE))
        closed = await client.wait_for(SpanClosed)
        assert isinstance(closed, SpanClosed)
        assert closed.transcript == "word0 word1 word2"
        heard = [event.text for event in client.events if isinstance(event, Heard)]
        assert "".join(heard) == closed.transcript


async def test_a_killed_engine_fails_everyone_and_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(worker_of()) as worker:
        idle, talking = Client(worker), Client(worker)
        talking.generate(ENDLESS)
        await talking.wait_for(Generated)
        assert worker.pid is not None
        with caplog.at_level(logging.ERROR):
            os.kill(worker.pid, signal.SIGKILL)
            for client in (idle, talking):
                failed = await client.wait_for(Failed)
                assert isinstance(failed, Failed)
                assert failed.code == "engine_lost"
                assert failed is client.events[-1]
        assert worker.info is None
        assert worker.pid is None
        assert len(caplog.records) == 1
        with pytest.raises(EngineBusy, match="starting"):
            Client(worker)
        talking.generate()  # a sequence that failed: dropped without a word
        await worker.wait_ready()
        again = Client(worker)
        assert again.id not in (idle.id, talking.id)
        again.generate()
        await again.wait_for(TurnEnded)


async def test_a_broken_step_ends_the_process_and_a_fault_only_its_sequence() -> None:
    async with running(worker_of()) as worker:
        good, faulty = Client(worker), Client(worker)
        faulty.generate(FAULTY)
        failed = await faulty.wait_for(Failed)
        assert isinstance(failed, Failed)
        assert failed.code == "internal"
        pid = worker.pid
        good.generate(BROKEN)
        failed = await good.wait_for(Failed)
        assert isinstance(failed, Failed)
        assert failed.code == "engine_lost"
        await worker.wait_ready()
        assert worker.pid != pid


async def test_missing_weights_are_the_callers_to_know() -> None:
    worker = worker_of("missing")
    with pytest.raises(ModelNotFound, match="run: sensorium pull missing"):
        await worker.run()
    with pytest.raises(ModelNotFound, match="run: sensorium pull missing"):
        await worker.wait_ready()
    assert worker.pid is None


async def test_a_crash_while_loading_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        async with running(worker_of(f"crash {tmp_path / 'marker'}")) as worker:
            assert worker.info is not None
    assert [r.getMessage() for r in caplog.records] == [
        "the engine died while it started; trying again in 0.2 s"
    ]


async def test_no_more_sequences_than_configured() -> None:
    async with running(worker_of(max_sequences=1)) as worker:
        client = Client(worker)
        with pytest.raises(EngineBusy, match="holds 1 sequences"):
            Client(worker)
        worker.submit(CloseSequence(sequence_id=client.id))
        await client.wait_for(Closed)
        assert client.events == [Closed(sequence_id=client.id)]
        Client(worker)


async def test_an_engine_that_does_not_read_is_busy_but_can_be_closed() -> None:
    async with running(worker_of()) as worker:
        client = Client(worker)
        pid = worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        sound = AppendMedia(
            sequence_id=client.id, span_id=ONE, pts=0, shape=(2**18,), data=bytes(2**20)
        )
        with pytest.raises(EngineBusy, match="bytes are waiting"):
            submit_all(worker, [sound] * 100)
        worker.submit(CloseSequence(sequence_id=client.id))
        os.kill(pid, signal.SIGCONT)
        await client.wait_for(Closed)


@pytest.mark.parametrize("launch", [launch_stub, launch_stub_thread])
async def test_all_media_of_a_conversation_may_be_sent_at_once(launch: Any) -> None:
    picture = bytes(1792 * 1792 * 3)  # the largest of Muse's
    spans = [SpanId(number) for number in range(1, 6)]
    async with running(worker_of(launch=launch)) as worker:
        client = Client(worker)
        for span in spans:
            submit_all(
                worker,
                [
                    OpenSpan(sequence_id=client.id, span_id=span, modality="image"),
                    AppendMedia(
                        sequence_id=client.id,
                        span_id=span,
                        pts=0,
                        shape=(1, 1792, 1792, 3),
                        dtype="uint8",
                        data=picture,
                    ),
                    CloseSpan(sequence_id=client.id, span_id=span),
                ],
            )
        client.worker.submit(Generate(sequence_id=client.id, span_id=SpanId(9)))
        await client.wait_for(TurnEnded)
        closed = [event.span_id for event in client.events if isinstance(event, SpanClosed)]
        assert closed == spans


async def test_what_waits_for_an_engine_is_bounded() -> None:
    async with running(worker_of()) as worker:
        client = Client(worker)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        sound = AppendMedia(
            sequence_id=client.id, span_id=ONE, pts=0, shape=(2**21,), data=bytes(2**23)
        )
        most = (MAX_OUTGOING_BYTES + MAX_FRAME_BYTES) // len(sound.data)
        submit_all(worker, [sound] * (MAX_OUTGOING_BYTES // len(sound.data)))
        with pytest.raises(EngineBusy):
            submit_all(worker, [sound] * (most - MAX_OUTGOING_BYTES // len(sound.data)))
        os.kill(worker.pid, signal.SIGCONT)


async def test_a_failing_listener_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(events: list[EngineEvent]) -> None:
        raise RuntimeError("no ears")

    async with running(worker_of()) as worker:
        worker.open(deaf := worker.new_sequence_id(), refuse)
        client = Client(worker)
        worker.submit(CloseSequence(sequence_id=deaf))
        client.generate()
        await client.wait_for(TurnEnded)
    assert "no ears" in caplog.text


async def test_stop_leaves_no_process() -> None:
    async with running(worker_of()) as worker:
        pid = worker.pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert worker.info is None
    with pytest.raises(CoreError, match="stopped"):
        await worker.wait_ready()


async def test_an_engine_that_is_still_loading_is_killed_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    launched = asyncio.Event()

    async def launch(sock: socket.socket) -> Child:
        child = await launch_stub(sock)
        launched.set()
        return child

    worker = worker_of("slow", launch=launch)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await launched.wait()
        await worker.stop(deadline_s=60.0)
    assert caplog.records == []


async def test_an_engine_that_hangs_is_killed_at_the_deadline() -> None:
    async with running(worker_of()) as worker:
        pid = worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await worker.stop(deadline_s=0.01)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_cancelling_the_supervisor_leaves_no_process() -> None:
    worker = worker_of()
    task = asyncio.ensure_future(worker.run())
    await worker.wait_ready()
    pid = worker.pid
    assert pid is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_requests_of_unknown_sequences_are_dropped() -> None:
    worker = worker_of()
    worker.submit(CloseSequence(sequence_id=SequenceId(99)))
    assert worker.load is None
