"""What the engine loop takes its work from: requests, bounded, and what the encoders have heard."""

import threading
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """Many threads put, the engine loop takes everything at once.

    `put` waits while `capacity` items are there, which stops the reading of the socket and so
    pushes back on the gateway. `put_now` never waits: encoders (whose work in flight is bounded by
    the clips) and the loop itself use it.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once `close` was called; what is still inside doesn't matter any more."""
        return self._closed

    def put(self, item: Item) -> None:
        """Add an item, waiting for room; after `close` it vanishes."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._items) < self._capacity or self._closed)
        self.put_now(item)

    def put_now(self, item: Item) -> None:
        """Add an item without waiting."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def take(self, timeout_s: float | None) -> list[Item]:
        """Return all items, oldest first; waits for one up to `timeout_s` (None: for ever)."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._items) or self._closed, timeout_s)
            items = list(self._items)
            self._items.clear()
            self._changed.notify_all()
        return items

    def close(self) -> None:
        """Wake everybody up for the end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
