"""Items and their order, and what the model's prompt is made of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sensorium.core.text.history import Said
from sensorium.core.text.prompt import Prompt
from sensorium.gateway.errors import PeerError
from sensorium.gateway.items import AudioPart, Item, ItemReference, Part, TextPart
from sensorium.gateway.media import Medium

Piece = tuple[int, ...] | Medium

_CHARACTERS_PER_POSITION = 8
"""No tokenizer packs more text into a position on average: longer texts are refused unread."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of the prompt that is kept or dropped as a whole: token ids and media, in order.

    Equal keys mean equal content.
    """

    key: tuple[str, str]
    pieces: tuple[Piece, ...]

    @property
    def media(self) -> list[Medium]:
        """The media among its pieces."""
        return [piece for piece in self.pieces if isinstance(piece, Medium)]

    @property
    def num_positions(self) -> int:
        """Positions that it takes, as far as they are known."""
        return sum(p.num_positions if isinstance(p, Medium) else len(p) for p in self.pieces)


def text_of(item: Item) -> str:
    """Return the words of an item: its texts and the transcripts of its sound."""
    return "\n".join(text for text in map(_words, item.content) if text.strip())


def check_size(item: Item, prompt: Prompt, limit: int) -> None:
    """Raise PeerError if the text of an item has more than `limit` tokens."""
    text = text_of(item)
    if len(text) <= limit * _CHARACTERS_PER_POSITION:
        count = len(prompt.text(text))
        if count <= limit:
            return
        size = f"{count} tokens"
    else:
        size = f"{len(text)} characters"
    raise PeerError(
        "invalid_value",
        f"The item's text has {size}; this model takes at most {limit} tokens an item.",
        param="item.content",
    )


def _words(part: Part) -> str:
    match part:
        case TextPart(text=text):
            return text
        case AudioPart(transcript=transcript):
            return transcript or ""
        case _:
            return ""


class Conversation:
    """The items of a session in order, by id."""

    def __init__(self, prompt: Prompt) -> None:
        self._prompt = prompt
        self._items: dict[str, Item] = {}
        self._order: list[str] = []
        self._units: dict[str, Unit] = {}
        self._media: dict[str, dict[int, tuple[Medium, ...]]] = {}
        self._expected: dict[str, set[int]] = {}

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
            content = list(item.content)
            for place, part in enumerate(content):
                if isinstance(part, AudioPart):  # all its sound was heard as one
                    content[place] = AudioPart(transcript=transcript)
                    transcript = ""
            self.update(replace(item, content=tuple(content)))

    def remove(self, item_id: str) -> None:
        """Drop an item; KeyError if it isn't there."""
        del self._items[item_id]
        self._order.remove(item_id)
        self._units.pop(item_id, None)
        self._media.pop(item_id, None)
        self._expected.pop(item_id, None)

    def oldest_id(self, keep: frozenset[str]) -> str | None:
        """Return the oldest item that may be dropped: not a system message, not one of `keep`."""
        return next(
            (i for i in self._order if self._items[i].role != "system" and i not in keep), None
        )

    def units(self, instructions: str) -> list[Unit]:
        """Return the prompt: instructions, then every finished item that has words or media."""
        units = [self.instructions_unit(instructions)]
        return units + [u for u in map(self.unit, self._order) if u is not None]

    def units_of(self, instructions: str, items: Iterable[Item | ItemReference]) -> list[Unit]:
        """Return a prompt of the given items alone; raises PeerError for an unknown reference."""
        units = [self.instructions_unit(instructions)]
        for item in items:
            parts: dict[int, tuple[Medium, ...]] = {}
            if isinstance(item, ItemReference):
                if item.item_id not in self._items:
                    raise PeerError(
                        "invalid_value",
                        f"There is no item '{item.item_id}'.",
                        param="response.input",
                    )
                item = self._items[item.item_id]
                parts = self._media.get(item.item_id, {})
            pieces = self._pieces(item, parts)
            if pieces:
                units.append(Unit(("input", item.item_id), pieces))
        return units

    def instructions_unit(self, instructions: str) -> Unit:
        """Return the head of every prompt."""
        text = instructions or self._prompt.default_instructions
        return Unit(("instructions", text), (self._prompt.preamble(text),))

    def keep_as_written(self, item_id: str, token_ids: tuple[int, ...]) -> None:
        """The prompt holds an answer as the model wrote it, with what it told nobody."""
        self._units[item_id] = Unit(("item", item_id), (token_ids,))

    # --- media ----------------------------------------------------------------------------------

    @property
    def expecting(self) -> set[str]:
        """The items of which parts are still to be filled. They aren't in the prompt before."""
        return set(self._expected)

    def expect(self, item_id: str, parts: Iterable[int]) -> None:
        """The item isn't complete before these parts of it are filled."""
        if missing := set(parts):
            self._expected[item_id] = missing

    def keep(self, item_id: str, part: int, media: tuple[Medium, ...]) -> None:
        """Fill a part of an item with what was decoded or recorded of it; nothing if it is gone."""
        if item_id not in self._items:
            return
        self._media.setdefault(item_id, {})[part] = media
        self._units.pop(item_id, None)
        missing = self._expected.get(item_id, set())
        missing.discard(part)
        if not missing:
            self._expected.pop(item_id, None)

    def item_with(self, medium: Medium) -> str | None:
        """Return the item that a medium belongs to, None if it was dropped meanwhile."""
        return next((i for i in self._media if medium in self.media_of(i)), None)

    def media_of(self, item_id: str) -> list[Medium]:
        """Return the media of an item, in order."""
        parts = self._media.get(item_id, {})
        return [medium for place in sorted(parts) for medium in parts[place]]

    @property
    def media_bytes(self) -> int:
        """Memory that all media take."""
        return sum(medium.num_bytes for i in self._media for medium in self.media_of(i))

    def oldest_with_media(self, keep: frozenset[str]) -> str | None:
        """Return the oldest item with media that is not one of `keep`."""
        return next((i for i in self._order if i in self._media and i not in keep), None)

    def unit(self, item_id: str) -> Unit | None:
        """Return what an item is in the prompt, None while it isn't complete, or has nothing."""
        item = self._items[item_id]
        if item.status == "in_progress" or item_id in self._expected:
            return None
        if item_id not in self._units:
            parts = self._media.get(item_id, {})
            pieces = self._pieces(item, parts)
            if not pieces:
                return None
            self._units[item_id] = Unit((_kind(item, parts), item_id), pieces)
        return self._units[item_id]

    def _pieces(self, item: Item, parts: Mapping[int, tuple[Medium, ...]]) -> tuple[Piece, ...]:
        """Return the message that an item is in the prompt, () if there is nothing in it."""
        if not parts:
            text = text_of(item)
            return (self._prompt.entry(Said(role=item.role, text=text)),) if text else ()
        body: list[Medium | str] = []
        for place, part in enumerate(item.content):
            if place in parts:
                body += parts[place]
            elif (text := _words(part)).strip():
                body.append(text)
        pieces: list[Piece] = [self._prompt.open_message(item.role)]
        for before, here in zip([None, *body], body, strict=False):
            if _are_words(before) and _are_words(here):
                pieces.append(self._prompt.text("\n"))
            pieces.append(self._prompt.text(here) if isinstance(here, str) else here)
        pieces.append(self._prompt.close_message())
        return tuple(pieces)


def _kind(item: Item, parts: Mapping[int, tuple[Medium, ...]]) -> str:
    """Return the first half of a unit's key.

    Sound that is heard as words is placed as a message of its own, the unit "item", when it is
    heard. With a picture beside it the item is another unit, and yet another with other words.
    """
    words = [
        part.transcript
        for place, part in enumerate(item.content)
        if isinstance(part, AudioPart) and place not in parts
    ]
    return f"heard {words}" if parts and words else "item"


def _are_words(piece: Medium | str | None) -> bool:
    """Tell whether a piece reads as text; rows need nothing between them and their neighbours."""
    return isinstance(piece, str) or (piece is not None and not piece.gives_rows)
