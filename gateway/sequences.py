"""The engine's sequences of one session: opened, refused, and closed whatever happens."""

import asyncio
from collections.abc import Callable, Iterable

from sensorium.core.api import (
    Closed,
    CloseSequence,
    EngineBusy,
    EngineEvent,
    EngineRequest,
    Failed,
    OpenSequence,
    SequenceId,
)
from sensorium.gateway.metrics import Metrics
from sensorium.gateway.ports import EnginePort

RETRY_CLOSE_S = 0.05


class Sequences:
    """Keeps the books between a session, which thinks a refused sequence gone, and the engine.

    Events of `on_events` are those of sequences that the session still knows.
    """

    def __init__(
        self,
        engine: EnginePort,
        metrics: Metrics,
        on_events: Callable[[list[EngineEvent]], None],
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._on_events = on_events
        self._open: set[SequenceId] = set()
        self._refused: set[SequenceId] = set()

    def submit(self, requests: Iterable[EngineRequest]) -> list[EngineEvent]:
        """Hand requests over; a sequence whose request is refused has failed (`engine_busy`)."""
        failures: list[EngineEvent] = []
        for request in requests:
            try:
                self._hand_over(request)
            except EngineBusy as error:
                sequence_id = request.sequence_id
                self._refused |= self._open & {sequence_id}
                failures.append(
                    Failed(sequence_id=sequence_id, code="engine_busy", message=str(error))
                )
        self._close_refused()
        return failures

    def offer(self, request: EngineRequest) -> bool:
        """Hand one request over unless the way is full; a closed sequence's request is dropped."""
        try:
            self._hand_over(request)
        except EngineBusy:
            return False
        return True

    async def close_all(self, timeout_s: float) -> None:
        """Close what is still open; tries for `timeout_s` while the way to the engine is full."""
        self._refused |= self._open
        attempts = max(1, int(timeout_s / RETRY_CLOSE_S))
        for _ in range(attempts):
            if not self._close_refused():
                return
            await asyncio.sleep(RETRY_CLOSE_S)

    def _hand_over(self, request: EngineRequest) -> None:
        sequence_id = request.sequence_id
        if isinstance(request, OpenSequence):
            self._engine.open(sequence_id, self._hear)
            self._open.add(sequence_id)
        elif sequence_id in self._open - self._refused:
            self._engine.submit(request)
            if isinstance(request, CloseSequence):
                self._open.discard(sequence_id)

    def _hear(self, events: list[EngineEvent]) -> None:
        known = [event for event in events if event.sequence_id not in self._refused]
        for event in events:
            if isinstance(event, Failed):
                self._metrics.sequences_failed.labels(event.code).inc()
            if isinstance(event, Failed | Closed):
                self._open.discard(event.sequence_id)
                self._refused.discard(event.sequence_id)
        if known:
            self._on_events(known)

    def _close_refused(self) -> bool:
        """Try to close sequences whose session no longer wants them; True if some remain to try."""
        for sequence_id in list(self._refused & self._open):
            try:
                self._engine.submit(CloseSequence(sequence_id=sequence_id))
            except EngineBusy:
                return True
            self._open.discard(sequence_id)
        return False
