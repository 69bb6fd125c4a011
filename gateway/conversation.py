"""Items and their order, and what the model's prompt is made of."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sensorium.core.text.history import Said
from sensorium.core.text.prompt import Prompt
from sensorium.gateway.errors import PeerError
from sensorium.gateway.items import AudioPart, Item, ItemReference, TextPart


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of the prompt that is kept or dropped as a whole; equal keys mean equal content."""

    key: tuple[str, str]
    token_ids: tuple[int, ...]


def text_of(item: Item) -> str:
    """Return what the model reads of an item: its texts and the transcripts of its sound."""
    parts = (p.text if isinstance(p, TextPart) else (p.transcript or "") for p in item.content)
    return "\n".join(text for text in parts if text.strip())


class Conversation:
    """The items of a session in order, by id."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._items: dict[str, Item] = {}
        self._order: list[str] = []
        self._units: dict[str, Unit] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._items

    def __getitem__(self, item_id: str) -> Item:
        return self._items[item_id]

    @property
    def ids(self) -> list[str]:
        """Ids in order."""
        return self._order

    @property
    def last_id(self) -> str | None:
        """Id of the newest item, None if there is none."""
        return self._order[-1] if self._order else None

    def previous_id(self, item_id: str) -> str | None:
        """Return the id before `item_id`, None for the first."""
        place = self._order.index(item_id)
        return self._order[place - 1] if place else None

    def insert(self, item: Item, after: str | None) -> str | None:
        """Put an item at the end (None), the front ("root") or after an id. Returns the id before.

        Raises PeerError for an id that is taken or a predecessor that isn't there.
        """
        if item.item_id in self._items:
            raise PeerError(
                "item_create_duplicate_item_id",
                f"An item with id '{item.item_id}' exists already; choose another or leave it out.",
                param="item.id",
            )
        if after not in (None, "root") and after not in self._items:
            raise PeerError(
                "invalid_value",
                f"There is no item '{after}'; use an item's id, 'root' or nothing.",
                param="previous_item_id",
            )
        if after is None:
            place = len(self._order)
        else:
            place = 0 if after == "root" else self._order.index(after) + 1
        self._order.insert(place, item.item_id)
        self._items[item.item_id] = item
        return self.previous_id(item.item_id)

    def update(self, item: Item) -> None:
        """Replace an item by a newer state of itself."""
        self._items[item.item_id] = item
        self._units.pop(item.item_id, None)

    def set_transcript(self, item_id: str, transcript: str) -> None:
        """Fill in what was heard in an item's sound."""
        item = self._items.get(item_id)
        if item is not None:
            content = tuple(
                AudioPart(transcript=transcript) if isinstance(part, AudioPart) else part
                for part in item.content
            )
            self.update(replace(item, content=content))

    def remove(self, item_id: str) -> None:
        """Drop an item; KeyError if it isn't there."""
        del self._items[item_id]
        self._order.remove(item_id)
        self._units.pop(item_id, None)

    def oldest_id(self, keep: frozenset[str]) -> str | None:
        """Return the oldest item that may be dropped: not a system message, not one of `keep`."""
        return next(
            (i for i in self._order if self._items[i].role != "system" and i not in keep), None
        )

    def units(self, instructions: str) -> list[Unit]:
        """Return the prompt: instructions, then every finished item that has words."""
        units = [self.instructions_unit(instructions)]
        return units + [u for u in map(self._unit, self._order) if u is not None]

    def units_of(self, instructions: str, items: Iterable[Item | ItemReference]) -> list[Unit]:
        """Return a prompt of the given items alone; raises PeerError for an unknown reference."""
        units = [self.instructions_unit(instructions)]
        for item in items:
            if isinstance(item, ItemReference):
                if item.item_id not in self._items:
                    raise PeerError(
                        "invalid_value",
                        f"There is no item '{item.item_id}'.",
                        param="response.input",
                    )
                item = self._items[item.item_id]
            text = text_of(item)
            if text:
                said = Said(role=item.role, text=text)
                units.append(Unit(("input", item.item_id), self._prompt.entry(said)))
        return units

    def instructions_unit(self, instructions: str) -> Unit:
        """Return the head of every prompt."""
        text = instructions or self._prompt.default_instructions
        return Unit(("instructions", text), self._prompt.preamble(text))

    def keep_as_written(self, item_id: str, token_ids: tuple[int, ...]) -> None:
        """The prompt holds an answer as the model wrote it, with what it told nobody."""
        self._units[item_id] = Unit(("item", item_id), token_ids)

    def _unit(self, item_id: str) -> Unit | None:
        item = self._items[item_id]
        if item.status == "in_progress" or not (text := text_of(item)):
            return None
        if item_id not in self._units:
            said = Said(role=item.role, text=text)
            self._units[item_id] = Unit(("item", item_id), self._prompt.entry(said))
        return self._units[item_id]
