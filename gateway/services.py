"""What the endpoints of one gateway share, and how it comes to rest."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Protocol

from sensorium.core.text.prompt import Prompt
from sensorium.gateway.activity import ActivityPool
from sensorium.gateway.admission import Admission
from sensorium.gateway.metrics import Metrics
from sensorium.gateway.ports import EnginePort
from sensorium.gateway.settings import Settings

logger = logging.getLogger(__name__)

SERVICE_RESTART = 1012
"""WebSocket close code of the IANA registry: clients reconnect."""
STOPPING = "server_shutting_down"
STOPPING_MESSAGE = "The server is shutting down; connect again in a moment."
_POLL_S = 0.02


class Stoppable(Protocol):
    """A session or request in progress."""

    def shut_down(self, code: int, code_name: str, message: str) -> None:
        """End soon, and tell the peer why."""
        ...


@dataclass(kw_only=True)
class Services:
    """Everything an endpoint needs. `live` = what runs; `stopping` = no more may begin."""

    engine: EnginePort
    prompt: Prompt
    activity: ActivityPool[Any]
    admission: Admission
    metrics: Metrics
    settings: Settings
    live: set[Stoppable] = field(default_factory=set)
    stopping: bool = False

    async def drain(self, timeout_s: float) -> None:
        """Tell every session and request that the server stops; wait for their ends."""
        self.stopping = True
        for stoppable in list(self.live):
            stoppable.shut_down(SERVICE_RESTART, STOPPING, STOPPING_MESSAGE)
        for _ in range(int(timeout_s / _POLL_S)):
            if not self.live:
                return
            await asyncio.sleep(_POLL_S)
        logger.warning("%s sessions or requests didn't end in time", len(self.live))
