"""What is dropped of a conversation that outgrows its limits: the oldest, with an event."""

from collections.abc import Iterable

import pytest
from conversation_rig import clip, conversation, item

from sensorium.gateway.configuration import SessionConfig
from sensorium.gateway.context import Context, length
from sensorium.gateway.conversation import Conversation
from sensorium.gateway.items import PicturePart
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.server_events import ItemDeleted

CONFIG = SessionConfig(instructions="S")


class Rig:
    """A conversation within limits; `in_use` may not be dropped."""

    def __init__(
        self,
        made: Conversation,
        *,
        max_positions: int = 1000,
        max_items: int = 100,
        max_media_bytes: int = 1000,
        in_use: Iterable[str] = (),
    ) -> None:
        self.outbox = Outbox()
        self.conversation = made
        self.context = Context(
            made,
            self.outbox,
            max_positions=max_positions,
            max_items=max_items,
            max_media_bytes=max_media_bytes,
            in_use=lambda: set(in_use),
        )

    def dropped(self) -> list[str]:
        events = self.outbox.take_events()
        return [event.item_id for event in events if isinstance(event, ItemDeleted)]


def pictures(sizes: dict[str, int], num_positions: int = 5) -> Conversation:
    """An item of each name, with media of so many bytes; of none where it is 0."""
    made = conversation(*(item(name, "text", PicturePart()) for name in sizes))
    for name, num_bytes in sizes.items():
        if num_bytes:
            made.keep(name, 1, (clip(name, num_bytes=num_bytes, num_positions=num_positions),))
    return made


@pytest.mark.parametrize(
    ("limit", "in_use", "dropped"),
    [
        (900, "", []),
        (899, "", ["b"]),
        (600, "", ["b"]),
        (599, "", ["b", "c"]),
        (10, "", ["b", "c", "d"]),  # the newest stays whatever it takes
        (599, "b", ["c", "d"]),
        (10, "bcd", []),
    ],
)
def test_oldest_media_go_that_nobody_uses(limit: int, in_use: str, dropped: list[str]) -> None:
    sizes = {"a": 0, "b": 300, "c": 200, "d": 100, "e": 300}
    rig = Rig(pictures(sizes), max_media_bytes=limit, in_use=in_use)
    rig.context.drop_excess_items()
    assert rig.dropped() == dropped
    assert rig.conversation.ids == [name for name in "abcde" if name not in dropped]


def test_too_many_items_go_first() -> None:
    rig = Rig(pictures({"a": 0, "b": 500, "c": 400, "d": 100}), max_items=2, max_media_bytes=500)
    rig.context.drop_excess_items()
    assert rig.dropped() == ["a", "b"]


def test_prompt_is_fitted_by_the_positions_of_media() -> None:
    rig = Rig(pictures({"a": 1, "b": 1, "c": 1}, num_positions=400), max_positions=1000)
    units = rig.context.fit(CONFIG, 100)
    assert rig.dropped() == ["a", "b"]  # to 80 % of the room, so that the next turn cuts nothing
    assert length(units) < 720
    assert [unit.key for unit in units] == [("instructions", "S"), ("item", "c")]


def test_nothing_is_cut_where_the_client_forbids_it() -> None:
    rig = Rig(pictures({"a": 1, "b": 1, "c": 1}, num_positions=400), max_positions=1000)
    units = rig.context.fit(SessionConfig(instructions="S", truncation="disabled"), 100)
    assert rig.dropped() == []
    assert length(units) > 1200
