"""The gateway's handle of the engine: starts it, feeds it, hands its events out, restarts it.

It fits `gateway.ports.EnginePort`. Everything here runs on the gateway's event loop.
"""

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable, Sequence

from sensorium.core import errors, ipc
from sensorium.core.api import (
    Closed,
    CloseSequence,
    EngineBusy,
    EngineEvent,
    EngineLoad,
    EngineRequest,
    Failed,
    Interrupt,
    ModelInfo,
    OpenSequence,
    Rollback,
    SequenceId,
)
from sensorium.core.child import Child, Launch, launch_process, launch_thread
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import CoreError

logger = logging.getLogger(__name__)

OnEvents = Callable[[list[EngineEvent]], None]

MAX_OUTGOING_BYTES = 64 * 2**20
"""What may wait for the engine to read it: all the media of one conversation, which come at once
when it is taken up again, and 16 MiB of others (2 s of 60 streams of sound). One frame more may be
in memory: ipc.MAX_FRAME_BYTES."""

LOST = "The engine stopped unexpectedly and is being restarted; please try again."
FIRST_DELAY_S, LAST_DELAY_S = 0.2, 10.0
EXIT_GRACE_S = 2.0
"""How long a child that has closed its socket may take to exit."""

_FREEING = (Interrupt, Rollback, CloseSequence)
_SOCKET_LIMIT_BYTES = 2**20


class EngineWorker:
    """Supervises one engine and speaks for it.

    `run` belongs in a TaskGroup or lifespan beside whoever uses the worker. All other methods are
    called on the same event loop. `in_process` runs the engine in a thread instead of a process;
    `launch` replaces both. `max_outgoing_bytes` must be more than any one sequence is sent at once.
    """

    def __init__(
        self,
        models: ModelsConfig,
        engine: EngineConfig,
        *,
        in_process: bool = False,
        launch: Launch | None = None,
        max_outgoing_bytes: int = MAX_OUTGOING_BYTES,
    ) -> None:
        self._start = ipc.Start(models=models, engine=engine)
        self._max_sequences = engine.max_sequences
        self._max_outgoing_bytes = max_outgoing_bytes
        self._launch = launch or (launch_thread if in_process else launch_process)
        self._ids = itertools.count(1)
        self._sequences: dict[SequenceId, OnEvents] = {}
        self._info: ModelInfo | None = None
        self._load: EngineLoad | None = None
        self._failure: CoreError | None = None
        self._settled = asyncio.Event()
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stopped.set()
        self._was_ever_ready = False
        self._writer: asyncio.StreamWriter | None = None
        self._child: Child | None = None

    # --- EnginePort -----------------------------------------------------------------------------

    @property
    def info(self) -> ModelInfo | None:
        """What is served; None until the engine is ready, and again while it restarts."""
        return self._info

    @property
    def load(self) -> EngineLoad | None:
        """The newest load report; None while there is no engine."""
        return self._load

    @property
    def pid(self) -> int | None:
        """The engine's process id, None while there is none (or it is a thread)."""
        return self._child.pid if self._child else None

    def new_sequence_id(self) -> SequenceId:
        """Return an id that no other sequence has, over restarts too."""
        return SequenceId(next(self._ids))

    def open(self, sequence_id: SequenceId, on_events: OnEvents) -> None:
        """Create an empty sequence whose events are handed to `on_events`.

        Raises EngineBusy while the engine isn't ready or `max_sequences` are open.
        """
        if self._info is None:
            raise EngineBusy("the engine is starting")
        if len(self._sequences) >= self._max_sequences:
            raise EngineBusy(f"the engine holds {self._max_sequences} sequences, its limit")
        self._send(OpenSequence(sequence_id=sequence_id))
        self._sequences[sequence_id] = on_events

    def submit(self, request: EngineRequest) -> None:
        """Send a request; one for a sequence that has failed or closed is dropped.

        Raises EngineBusy while the engine doesn't read; what frees something always passes.
        Raises WireError for a request of more than 16 MiB.
        """
        if request.sequence_id in self._sequences:
            self._send(request)

    # --- life -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep an engine running until `stop`.

        Raises CoreError (ModelNotFound, BadCheckpoint, …) if the first one can't be loaded at all.
        """
        self._stopped.clear()
        delay_s = FIRST_DELAY_S
        try:
            while not self._stopping.is_set():
                if await self._run_once():
                    delay_s = FIRST_DELAY_S
                elif not self._stopping.is_set():
                    await self._pause(delay_s)
                    delay_s = min(2 * delay_s, LAST_DELAY_S)
        except CoreError as error:
            self._failure = error
            raise
        finally:
            self._failure = self._failure or CoreError("the engine was stopped")
            self._settled.set()
            self._stopped.set()

    async def wait_ready(self) -> ModelInfo:
        """Wait for the engine; raises CoreError if it can't be loaded or was stopped."""
        while self._info is None:
            if self._failure is not None:
                raise self._failure
            await self._settled.wait()
        return self._info

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Ask the engine to end, kill it after `deadline_s`; returns once `run` is over.

        One that is still loading is killed at once.
        """
        self._stopping.set()
        if self._writer is not None:
            self._writer.write(ipc.encode([ipc.Stop()]))
        if self._child is not None and self._info is None:
            self._child.kill()
        try:
            async with asyncio.timeout(deadline_s):
                await self._stopped.wait()
        except TimeoutError:
            logger.warning("the engine didn't stop within %.0f s and is killed", deadline_s)
            if self._child is not None:
                self._child.kill()
            await self._stopped.wait()

    async def _run_once(self) -> bool:
        """Run one engine from its start to its end; tells whether it was ever ready."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_SOCKET_LIMIT_BYTES)
        try:
            self._child = await self._launch(theirs)
            self._writer = writer
            writer.write(ipc.encode([self._start]))
            await self._receive(reader)
            async with asyncio.timeout(EXIT_GRACE_S):
                await self._child.wait()
        except TimeoutError:
            logger.error("the engine closed its socket but goes on, and is killed")
        finally:
            was_ready = self._lose()
            writer.close()
            await self._bury()
        return was_ready

    async def _bury(self) -> None:
        """Make sure that no child is left; kills one that still runs."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            await child.wait()

    async def _pause(self, delay_s: float) -> None:
        logger.error("the engine died while it started; trying again in %.1f s", delay_s)
        try:
            async with asyncio.timeout(delay_s):
                await self._stopping.wait()
        except TimeoutError:
            pass

    # --- messages -------------------------------------------------------------------------------

    def _send(self, request: EngineRequest) -> None:
        writer = self._writer
        assert writer is not None, "a sequence is open only while there is an engine"
        num_waiting = writer.transport.get_write_buffer_size()
        if num_waiting > self._max_outgoing_bytes and not isinstance(request, _FREEING):
            raise EngineBusy(f"{num_waiting} bytes are waiting for the engine to read them")
        for part in ipc.parts([request]):
            writer.write(memoryview(part))  # what is left of a view is no copy

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        """Hand out what the engine says until it says no more."""
        try:
            while (messages := await ipc.receive(reader)) is not None:
                self._distribute(messages)
        except ipc.WireError as error:
            logger.error("the engine sent what isn't an event and is killed: %s", error)
            if self._child is not None:
                self._child.kill()

    def _distribute(self, messages: Sequence[ipc.Message]) -> None:
        by_sequence: dict[SequenceId, list[EngineEvent]] = {}
        for message in messages:
            if isinstance(message, EngineEvent):
                by_sequence.setdefault(message.sequence_id, []).append(message)
            elif isinstance(message, EngineLoad):
                self._load = message
            elif isinstance(message, ipc.Ready):
                self._become_ready(message.info)
            elif isinstance(message, ipc.StartFailed):
                self._fail_start(message)
            else:
                raise ipc.WireError(f"{type(message).__name__} is for the engine, not from it")
        for sequence_id, events in by_sequence.items():
            self._hand_out(sequence_id, events)

    def _hand_out(self, sequence_id: SequenceId, events: list[EngineEvent]) -> None:
        on_events = self._sequences.get(sequence_id)
        if on_events is None:
            return
        if any(isinstance(event, Failed | Closed) for event in events):
            del self._sequences[sequence_id]
        try:
            on_events(events)
        except Exception:  # one session's fault must not cost the others their events
            logger.exception("events of sequence %d could not be taken", sequence_id)

    def _become_ready(self, info: ModelInfo) -> None:
        logger.info("the engine is ready: %s and %s", info.name, info.speech_encoder)
        self._info = info
        self._was_ever_ready = True
        self._settled.set()

    def _fail_start(self, failure: ipc.StartFailed) -> None:
        """Give up on an engine that could never be loaded; keep trying one that once could."""
        if self._was_ever_ready:
            logger.error("the engine can't be loaded again: %s", failure.message)
            return
        kind = getattr(errors, failure.kind, CoreError)
        raise kind(failure.message)

    def _lose(self) -> bool:
        """Forget the engine and tell its sequences; tells whether it was ready."""
        was_ready = self._info is not None
        self._info = self._load = self._writer = None
        self._settled.clear()
        if was_ready and not self._stopping.is_set():
            logger.error("the engine is lost, with %d sequences", len(self._sequences))
        for sequence_id in list(self._sequences):
            failed = Failed(sequence_id=sequence_id, code="engine_lost", message=LOST)
            self._hand_out(sequence_id, [failed])
        return was_ready
