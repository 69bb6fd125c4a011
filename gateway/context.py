"""The model's context: how much of a conversation fits, and what is dropped when it doesn't."""

from collections.abc import Callable
from dataclasses import replace

from sensorium.gateway.client_events import CreateResponse
from sensorium.gateway.configuration import SessionConfig
from sensorium.gateway.conversation import Conversation, Unit
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.server_events import ItemDeleted

_AFTER_CUT = 0.8
"""A conversation that is too long is cut to this share, so that not every turn cuts again."""


class Context:
    """Keeps a conversation within `max_positions`, `max_items` and `max_media_bytes`.

    What must go goes item by item, the oldest first, with events.

    `in_use` names items that must stay: those of open turns and of the running response.
    """

    def __init__(
        self,
        conversation: Conversation,
        outbox: Outbox,
        *,
        max_positions: int,
        max_items: int,
        max_media_bytes: int,
        in_use: Callable[[], set[str]],
    ) -> None:
        self._conversation = conversation
        self._outbox = outbox
        self._max_items = max_items
        self._in_use = in_use
        self.max_positions = max_positions
        self.max_media_bytes = max_media_bytes

    def reserve(self, max_tokens: int) -> int:
        """Return the positions to keep free for an answer: at most a quarter of all."""
        return min(max_tokens, self.max_positions // 4)

    def fit(self, config: SessionConfig, reserve: int) -> list[Unit]:
        """Return the conversation's prompt, cut at item borders if it leaves less than `reserve`.

        With truncation "disabled" it may come back too long.
        """
        units = self._conversation.units(config.instructions)
        room = self.max_positions - reserve
        if config.truncation == "disabled" or length(units) <= room:
            return units
        self.cut_to(config, int(room * _AFTER_CUT))
        return self._conversation.units(config.instructions)

    def units_for(self, config: SessionConfig, request: CreateResponse, reserve: int) -> list[Unit]:
        """Return the prompt of a response: the conversation, or what it names instead."""
        instructions = config.instructions
        if request.instructions is not None:
            instructions = request.instructions
        if request.input is not None:
            return self._conversation.units_of(instructions, request.input)
        return self.fit(replace(config, instructions=instructions), reserve)

    def cut_to(self, config: SessionConfig, room: int) -> None:
        """Drop the oldest items until the prompt has at most `room` positions, or none is left."""
        while length(self._conversation.units(config.instructions)) > room:
            if not self._drop_oldest():
                return

    def drop_excess_items(self) -> None:
        """Keep the number of items, and the memory of their media, within their limits."""
        while len(self._conversation) > self._max_items and self._drop_oldest():
            pass
        while self._conversation.media_bytes > self.max_media_bytes:
            keep = self._in_use() | {self._conversation.last_id or ""}
            item_id = self._conversation.oldest_with_media(frozenset(keep))
            if item_id is None:
                return
            self.forget(item_id)

    def forget(self, item_id: str) -> None:
        """Remove an item; the next prompt is rolled back to before it."""
        self._conversation.remove(item_id)
        self._outbox.say(ItemDeleted(item_id=item_id))

    def _drop_oldest(self) -> bool:
        keep = self._in_use() | {self._conversation.last_id or ""}
        item_id = self._conversation.oldest_id(frozenset(keep))
        if item_id is None:
            return False
        self.forget(item_id)
        return True


def length(units: list[Unit]) -> int:
    """Return the positions of a prompt."""
    return sum(unit.num_positions for unit in units)
