"""One sequence of the engine for the length of one HTTP request."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import count

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    CloseSpan,
    EngineEvent,
    EngineRequest,
    Failed,
    Generate,
    Interrupt,
    OpenSequence,
    OpenSpan,
    SamplingParams,
    SequenceId,
    SpanId,
)
from sensorium.encoders.base import ClipHints
from sensorium.encoders.media import Samples
from sensorium.gateway.errors import CapacityError, GatewayError, InternalError, PeerError
from sensorium.gateway.sequences import Sequences
from sensorium.gateway.services import STOPPING, STOPPING_MESSAGE, Services

CLOSE_TIMEOUT_S = 5.0
PACE_S = 0.02
MAX_WAIT_S = 10.0
"""How long sound waits for a full way to the engine before the request fails."""
_BUSY_CODES = ("engine_busy", "engine_lost", STOPPING)


class RequestSequence:
    """Requests in, events out, errors raised: `open_sequence` makes one and closes it."""

    def __init__(self, sequence_id: SequenceId, sequences: Sequences) -> None:
        self._id = sequence_id
        self._sequences = sequences
        self._span_ids = count(1)
        self._events: asyncio.Queue[EngineEvent] = asyncio.Queue()
        self._constrained_by = ""

    def hear(self, events: Iterable[EngineEvent]) -> None:
        """Queue the sequence's events; bounded by what the request asked for."""
        for event in events:
            self._events.put_nowait(event)

    def append_tokens(self, token_ids: tuple[int, ...]) -> None:
        """Append a span of ids."""
        self.submit(AppendTokens(sequence_id=self._id, span_id=self._span(), token_ids=token_ids))

    async def append_clip(self, chunks: Iterable[Samples], hints: ClipHints) -> None:
        """Append a clip of sound as one span; it ends with `SpanClosed`.

        Sound is handed over no faster than PACE_S a chunk: the way to the engine is shared with
        sessions, whose sound can't wait.
        """
        span_id = self._span()
        self.submit(OpenSpan(sequence_id=self._id, span_id=span_id, hints=hints))
        pts = 0
        for samples in chunks:
            sound = AppendMedia(
                sequence_id=self._id,
                span_id=span_id,
                pts=pts,
                shape=samples.shape,
                data=samples.tobytes(),
            )
            await self._submit_patiently(sound)
            pts += len(samples)
        self.submit(CloseSpan(sequence_id=self._id, span_id=span_id))

    def generate(self, sampling: SamplingParams, *, constrained_by: str = "") -> None:
        """Sample an answer; it ends with `TurnEnded`.

        `constrained_by` names the client's field that is to blame for a constraint it can't follow.
        """
        self._constrained_by = constrained_by
        self.submit(Generate(sequence_id=self._id, span_id=self._span(), sampling=sampling))

    def interrupt(self) -> None:
        """Stop the answer; `TurnEnded` still comes."""
        self.submit(Interrupt(sequence_id=self._id))

    def submit(self, request: EngineRequest) -> None:
        """Hand a request over; a refusal is an event like any other failure."""
        self.hear(self._sequences.submit([request]))

    async def _submit_patiently(self, request: EngineRequest) -> None:
        for _ in range(int(MAX_WAIT_S / PACE_S)):
            accepted = self._sequences.offer(request)
            await asyncio.sleep(PACE_S)
            if accepted:
                return
        self.submit(request)

    def shut_down(self, code: int, code_name: str, message: str) -> None:
        """Fail because the server stops."""
        self.hear([Failed(sequence_id=self._id, code=code_name, message=message)])

    async def next(self) -> EngineEvent:
        """Return the next event; raises the GatewayError that a failure of the engine means."""
        event = await self._events.get()
        if isinstance(event, Failed):
            raise failure(event, self._constrained_by)
        return event

    async def end(self) -> None:
        """Close the sequence."""
        await self._sequences.close_all(CLOSE_TIMEOUT_S)

    def _span(self) -> SpanId:
        return SpanId(next(self._span_ids))


@asynccontextmanager
async def open_sequence(services: Services) -> AsyncIterator[RequestSequence]:
    """Open a sequence for one request and close it whatever happens; raises CapacityError."""
    if services.stopping:
        raise CapacityError(STOPPING, STOPPING_MESSAGE)
    sequence_id = services.engine.new_sequence_id()
    sequences = Sequences(services.engine, services.metrics, lambda events: sequence.hear(events))
    sequence = RequestSequence(sequence_id, sequences)
    sequence.submit(OpenSequence(sequence_id=sequence_id))
    services.live.add(sequence)
    try:
        yield sequence
    finally:
        services.live.discard(sequence)
        await sequence.end()


def failure(event: Failed, constrained_by: str = "") -> GatewayError:
    """Return what a failed sequence means for the client of a request.

    The engine calls a request bad only for its constraint, the one thing in it that clients write.
    """
    if event.code in _BUSY_CODES:
        return CapacityError(event.code, event.message)
    if event.code == "context_full":
        return PeerError("context_length_exceeded", event.message, param="messages")
    if event.code == "bad_request" and constrained_by:
        message = f"{constrained_by!r} can't be kept to: {event.message}."
        return PeerError("invalid_value", message, param=constrained_by)
    return InternalError("internal_error", "The engine failed on this request.")
