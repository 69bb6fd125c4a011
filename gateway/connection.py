"""Runs one Session over one Transport and the engine: all asyncio code that a session has.

Reader, writer and timer share one TaskGroup on one event loop, so nothing needs a lock. Whatever
happens is a call of the session; after each, everything it wants is carried out.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from sensorium.core.api import EngineEvent
from sensorium.gateway.activity import ActivityPool
from sensorium.gateway.backlog import Backlog
from sensorium.gateway.decoding import FileDecoding
from sensorium.gateway.media import FileDecoded, FileRefused
from sensorium.gateway.metrics import Metrics, SessionMeter
from sensorium.gateway.ports import EnginePort, Transport, TransportClosed
from sensorium.gateway.sequences import Sequences
from sensorium.gateway.server_events import ErrorRaised, ServerEvent
from sensorium.gateway.session import InnerEvent, Session
from sensorium.gateway.settings import GatewaySettings
from sensorium.gateway.turns import VoiceActivity

logger = logging.getLogger(__name__)

MAX_PAUSE_S = 5.0
"""Longest time without reading: a socket that isn't read also swallows pongs and `cancel`."""
MAX_CLOSE_S = 1.0
"""How long a close frame may wait for room in the peer's buffer."""
MAX_CLOSING_S = 10.0
"""How long a session may take to end once its peer is gone, or to be told of its end."""

NORMAL, SLOW_CLIENT, INTERNAL = 1000, 1008, 1011


_INTERNAL_ERROR = ErrorRaised(
    code="internal_error",
    message="The server failed and has to end this session.",
    is_ours=True,
    close_code=INTERNAL,
)


class Connection:
    """One session with its peer and its sequences. `run` returns when all three have ended."""

    def __init__(
        self,
        *,
        session: Session,
        transport: Transport,
        engine: EnginePort,
        activity: ActivityPool[Any],
        metrics: Metrics,
        settings: GatewaySettings,
    ) -> None:
        self._id = session.session_id
        self._session = session
        self._transport = transport
        self._metrics = metrics
        self._meter = SessionMeter(metrics)
        self._settings = settings
        self._activity = activity.open(self._on_scores, self._fail)
        self._sequences = Sequences(engine, metrics, self._on_engine_events)
        self._backlog = Backlog()
        self._inbox: list[InnerEvent] = []
        intakes = {} if engine.info is None else engine.info.intakes
        self._files = FileDecoding(intakes, self._on_file, self._fail)
        self._applying = False
        self._broken = False
        self._peer_gone = False
        self._sending = False
        self._pause_over = False
        self._ending_since: float | None = None
        self._may_read = asyncio.Event()
        self._to_send = asyncio.Event()
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Serve the peer to its end. Never raises for what the peer or the engine did."""
        logger.info("session %s begins", self._id)
        try:
            self._apply(lambda now: None)
            async with asyncio.TaskGroup() as group:
                self._files.group = group
                tasks = [
                    group.create_task(work()) for work in (self._read, self._write, self._keep_time)
                ]
                await self._over.wait()
                for task in tasks:
                    task.cancel()
                self._files.cancel()
        finally:
            self._activity.close()
            self._meter.ended(self._session.frame_counts)
            await self._sequences.close_all(MAX_CLOSING_S)
            await self._close_transport(NORMAL, "")
            logger.info("session %s ended", self._id)

    def shut_down(self, code: int, code_name: str, message: str) -> None:
        """End the session from our side; the peer is told why."""
        self._apply(lambda now: self._session.shut_down(now, code, code_name, message))

    # --- calls of the session ---------------------------------------------------------------------

    def _apply(self, call: Callable[[float], None]) -> None:
        """Make one call of the session, carry out what it wants, and see what that changes."""
        if self._broken:
            return
        self._applying = True
        try:
            call(self._loop.time())
            self._carry_out()
            self._may_read_now()
        except Exception as error:  # 2.5: whatever goes wrong ends this session, and only this one
            self._fail(error)
        finally:
            self._applying = False
        self._changed.set()
        self._look_for_end()

    def _carry_out(self) -> None:
        while True:
            self._inbox.extend(self._sequences.submit(self._session.requests_to_submit()))
            if windows := self._session.windows_to_score():
                self._activity.submit(windows)
            for file in self._session.files_to_decode():
                self._files.start(file)
            events = self._session.events_to_send()
            for event in events:
                self._meter.queued(event)
            if events and not self._peer_gone:
                self._backlog.extend(events)
                self._to_send.set()
            if not self._inbox:
                return
            inbox, self._inbox = self._inbox, []
            self._session.advance(inbox, self._loop.time())

    def _on_file(self, answer: FileDecoded | FileRefused) -> None:
        self._inbox.append(answer)
        self._apply(lambda now: None)

    def _on_engine_events(self, events: list[EngineEvent]) -> None:
        self._inbox.extend(events)
        if not self._applying:
            self._apply(lambda now: None)

    def _on_scores(self, scores: list[float]) -> None:
        self._inbox.extend(VoiceActivity(probability=score) for score in scores)
        if not self._applying:
            self._apply(lambda now: None)

    def _fail(self, error: Exception) -> None:
        """Give the session up because of a fault of ours."""
        logger.error("session %s failed", self._id, exc_info=error)
        self._broken = True
        self._inbox.clear()
        self._backlog.clear()
        if not self._peer_gone:
            self._backlog.extend([_INTERNAL_ERROR])
        self._to_send.set()
        self._look_for_end()

    def _look_for_end(self) -> None:
        """Set `_over` once session and peer have both ended, or one has for too long."""
        ended = self._broken or self._session.closed
        told = self._peer_gone or not (self._backlog or self._sending)
        if (ended or self._peer_gone) and self._ending_since is None:
            self._ending_since = self._loop.time()
            self._changed.set()
        if ended and told:
            self._over.set()

    def _peer_left(self) -> None:
        if self._peer_gone:
            return
        self._peer_gone = True
        self._backlog.clear()
        if not self._session.closed:
            self._apply(self._session.transport_closed)
        self._look_for_end()

    # --- reader -----------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while True:
                await self._wait_for_room()
                event = await self._transport.receive()
                self._meter.received(event)
                self._apply(partial(self._session.receive, event))
                await asyncio.sleep(0)  # a flood from one peer must not starve the others
        except TransportClosed:
            self._peer_left()
        except Exception as error:  # whatever goes wrong ends this session alone
            self._fail(error)

    async def _wait_for_room(self) -> None:
        """Wait until the session takes input again, MAX_PAUSE_S at most."""
        try:
            async with asyncio.timeout(MAX_PAUSE_S):
                await self._may_read.wait()
        except TimeoutError:
            self._pause_over = True
            self._may_read.set()

    def _may_read_now(self) -> None:
        has_room = self._backlog.num_bytes < self._settings.max_outgoing_kib * 512
        if self._session.wants_input() and has_room:
            self._pause_over = False
            self._may_read.set()
        elif not self._pause_over:
            self._may_read.clear()

    # --- writer -----------------------------------------------------------------------------------

    async def _write(self) -> None:
        try:
            while True:
                await self._to_send.wait()
                self._to_send.clear()
                while self._backlog:
                    await self._send(self._backlog.pop())
                    self._look_for_end()
        except TransportClosed:
            self._sending = False
            self._peer_left()
        except Exception as error:  # the peer can no longer be told anything but a code
            self._fail(error)
            await self._close_transport(INTERNAL, "internal_error")
            self._sending = False
            self._peer_left()

    async def _send(self, event: ServerEvent) -> None:
        """Deliver one event; with a close code it is the last one. Raises TransportClosed."""
        self._sending = True
        if self._backlog.num_bytes > self._settings.max_outgoing_kib * 1024:
            await self._close_slow_client()
        try:
            async with asyncio.timeout(self._settings.max_send_s):
                await self._transport.send(event)
        except TimeoutError:
            await self._close_slow_client()
        if isinstance(event, ErrorRaised) and event.close_code is not None:
            await self._close(event.close_code, event.code)
        self._sending = False
        if not self._broken:
            self._may_read_now()

    async def _close_slow_client(self) -> None:
        logger.warning("session %s: the client doesn't read", self._id)
        self._metrics.slow_clients.inc()
        await self._close(SLOW_CLIENT, "slow_client")

    async def _close(self, code: int, reason: str) -> None:
        await self._close_transport(code, reason)
        raise TransportClosed

    async def _close_transport(self, code: int, reason: str) -> None:
        """Close; waits MAX_CLOSE_S at most for a peer that takes nothing any more."""
        try:
            async with asyncio.timeout(MAX_CLOSE_S):
                await self._transport.close(code, reason)
        except TimeoutError:
            logger.info("session %s: the client doesn't take its close", self._id)

    # --- timer ------------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        while True:
            self._changed.clear()
            deadline = self._deadline()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                if self._ending_since is not None and self._end_is_overdue():
                    logger.warning("session %s: its end took too long", self._id)
                    self._over.set()
                    return
                self._apply(self._session.handle_timer)

    def _deadline(self) -> float | None:
        deadlines = [] if self._broken else [self._session.next_deadline()]
        if self._ending_since is not None:
            deadlines.append(self._ending_since + self._ending_limit_s())
        return min((d for d in deadlines if d is not None), default=None)

    def _end_is_overdue(self) -> bool:
        assert self._ending_since is not None
        return self._loop.time() >= self._ending_since + self._ending_limit_s()

    def _ending_limit_s(self) -> float:
        """A peer that is still there may take as long as one send may; then MAX_CLOSING_S rules."""
        return MAX_CLOSING_S if self._peer_gone else MAX_CLOSING_S + self._settings.max_send_s
