"""The two doors of a connection: the transport on the peer's side, the engine on the other."""

from collections.abc import Callable
from typing import Protocol

from sensorium.core.api import EngineEvent, EngineLoad, EngineRequest, ModelInfo, SequenceId
from sensorium.gateway.client_events import ClientEvent
from sensorium.gateway.server_events import ServerEvent


class TransportClosed(Exception):
    """The peer is gone; a normal end."""


class Transport(Protocol):
    """A peer, however it is connected."""

    async def receive(self) -> ClientEvent:
        """Return the next client event; raises TransportClosed."""
        ...

    async def send(self, event: ServerEvent) -> None:
        """Deliver an event; returns when the peer's buffer has room; raises TransportClosed."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """End the connection; may be called twice."""
        ...


class EnginePort(Protocol):
    """The engine as the gateway sees it; `core.worker.EngineWorker` fits."""

    @property
    def info(self) -> ModelInfo | None:
        """What is served; None until the engine is ready, and again while it restarts."""
        ...

    @property
    def load(self) -> EngineLoad | None:
        """The newest load report."""
        ...

    def new_sequence_id(self) -> SequenceId:
        """Return an id that no other sequence of this gateway has."""
        ...

    def open(self, sequence_id: SequenceId, on_events: Callable[[list[EngineEvent]], None]) -> None:
        """Create an empty sequence; its events are handed to `on_events` on the event loop.

        Raises EngineBusy while the engine isn't ready or has no room for another sequence.
        """
        ...

    def submit(self, request: EngineRequest) -> None:
        """Hand over a request of an open sequence; never blocks.

        Raises EngineBusy if the way is full. A request for a sequence that has failed or closed is
        dropped.
        """
        ...
