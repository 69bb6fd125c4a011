"""Items, media and conversations made in one line."""

from tiny_text import tiny_prompt

from sensorium.gateway.conversation import Conversation
from sensorium.gateway.items import Item, ItemStatus, Part, TextPart
from sensorium.gateway.media import Medium, Piece


def clip(name: str, *, num_bytes: int = 10, rows: bool = True, num_positions: int = 5) -> Medium:
    """Return a picture called `name`, of rows or of words."""
    return Medium(
        modality="image",
        encoder="eyes",
        pieces=(Piece(pts=0, shape=(num_bytes,), dtype="uint8", data=bytes(num_bytes)),),
        content=name,
        gives_rows=rows,
        num_positions=num_positions,
    )


def item(item_id: str, *content: Part | str, status: ItemStatus = "completed") -> Item:
    """Return an item of the user's; a string is a part of text."""
    parts = tuple(TextPart(text=part) if isinstance(part, str) else part for part in content)
    return Item(item_id=item_id, role="user", content=parts, status=status)


def conversation(*items: Item) -> Conversation:
    """Return a conversation of items over single bytes."""
    made = Conversation(tiny_prompt())
    for each in items:
        made.insert(each, None)
    return made
