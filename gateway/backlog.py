"""What waits to be sent to one peer: bounded in bytes, and shorter the slower the peer reads."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from sensorium.gateway.items import Item
from sensorium.gateway.server_events import (
    ChannelDelta,
    OutputTextDelta,
    Response,
    ServerEvent,
    TranscriptDelta,
    TranscriptPartial,
)

_ENVELOPE_BYTES = 256
"""JSON around an event's text: type, ids, indices."""


class Backlog:
    """Server events in order. Deltas of one part merge with their neighbour while they wait.

    So a peer that reads slowly gets fewer and longer deltas; no other event is ever dropped.
    """

    def __init__(self) -> None:
        self._events: deque[ServerEvent] = deque()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._events)

    def extend(self, events: Iterable[ServerEvent]) -> None:
        """Queue events after what waits."""
        for event in events:
            merged = _merge(self._events[-1], event) if self._events else None
            if merged is not None:
                self.num_bytes -= num_bytes(self._events.pop())
                event = merged
            self._events.append(event)
            self.num_bytes += num_bytes(event)

    def pop(self) -> ServerEvent:
        """Take the oldest event; raises IndexError when empty."""
        event = self._events.popleft()
        self.num_bytes -= num_bytes(event)
        return event

    def clear(self) -> None:
        """Forget everything."""
        self._events.clear()
        self.num_bytes = 0


def num_bytes(event: ServerEvent) -> int:
    """Estimate an event's size on the wire from the text it carries."""
    size = _ENVELOPE_BYTES + 2 * len(getattr(event, "text", "") or "")
    item: Item | None = getattr(event, "item", None)
    if item is not None:
        size += _item_bytes(item)
    response: Response | None = getattr(event, "response", None)
    if response is not None:
        size += sum(_item_bytes(item) for item in response.output)
    config = getattr(event, "config", None)
    if config is not None:
        size += 1024 + 2 * len(config.instructions) + 2 * len(str(config.extras))
    return size


def _item_bytes(item: Item) -> int:
    texts = (getattr(p, "transcript", None) or getattr(p, "text", None) for p in item.content)
    return _ENVELOPE_BYTES + sum(2 * len(text or "") for text in texts)


def _merge(last: ServerEvent, event: ServerEvent) -> ServerEvent | None:
    """Return one event that says what two neighbours say, or None if there is none."""
    match last, event:
        case OutputTextDelta(), OutputTextDelta():
            if replace(last, text="") == replace(event, text=""):
                return replace(last, text=last.text + event.text)
        case ChannelDelta(), ChannelDelta():
            if replace(last, text="") == replace(event, text=""):
                return replace(last, text=last.text + event.text)
        case TranscriptDelta(), TranscriptDelta():
            if last.item_id == event.item_id:
                return replace(last, text=last.text + event.text)
        case TranscriptPartial(), TranscriptPartial():
            if last.item_id == event.item_id:
                return event
    return None
