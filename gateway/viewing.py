"""Media of items on their way into the conversation: each decoded, then kept.

Their item stands in the conversation from the start, so that what the client sends next keeps its
place; responses wait until all of them are decoded. One that can't be takes its item with it, and
the client is told.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sensorium.core.api import ModelInfo, SpanClosed
from sensorium.gateway.configuration import AudioFormat
from sensorium.gateway.context import Context
from sensorium.gateway.conversation import Conversation
from sensorium.gateway.errors import PeerError
from sensorium.gateway.items import AudioPart, Item, Part, PicturePart, TextPart, VideoPart
from sensorium.gateway.media import FileDecoded, FileRefused, FileToDecode, Medium, Modality
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.placement import Placement
from sensorium.gateway.server_events import ErrorRaised, ItemDone
from sensorium.gateway.spoken_turn import SpokenTurn

MAX_WAITING_BYTES = 32 << 20
"""Files of one session that may wait to be decoded; from half of it on its peer is read no more."""

_SENSES = {"image": "eyes", "video": "eyes for videos", "audio": "ears"}


@dataclass(slots=True)
class _Awaited:
    """A part of an item that is being decoded, and what the client called the event.

    `item_id` is "" once the item is gone.
    """

    item_id: str
    part: int
    event_id: str | None
    num_bytes: int


class Viewing:
    """The files of one session that aren't decoded yet."""

    def __init__(
        self,
        outbox: Outbox,
        conversation: Conversation,
        context: Context,
        model: ModelInfo,
        max_item_positions: int,
    ) -> None:
        self._outbox = outbox
        self._conversation = conversation
        self._context = context
        self._intakes = model.intakes
        self._max_item_positions = max_item_positions
        self._awaited: dict[int, _Awaited] = {}

    @property
    def is_busy(self) -> bool:
        """Whether an item of the conversation waits for its media."""
        return bool(self._conversation.expecting)

    @property
    def item_ids(self) -> set[str]:
        """The items that wait."""
        return self._conversation.expecting

    @property
    def wants_input(self) -> bool:
        """Whether more files are welcome."""
        return self._waiting_bytes() < MAX_WAITING_BYTES // 2

    def check(self, item: Item) -> None:
        """Raise PeerError for media that can't be taken now, or never by this model."""
        for place, part in enumerate(item.content):
            modality = modality_of(part)
            if modality is not None and modality not in self._intakes:
                taken = " and ".join(["text", *sorted(self._intakes)])
                raise PeerError(
                    "unsupported_content",
                    f"This model has no {_SENSES[modality]}; it takes {taken}.",
                    param=f"item.content[{place}].type",
                )
        num_bytes = sum(len(_bytes_of(part)) for part in item.content)
        if num_bytes and self._waiting_bytes() + num_bytes > MAX_WAITING_BYTES:
            raise PeerError(
                "buffer_overflow",
                f"More than {MAX_WAITING_BYTES >> 20} MiB of files wait to be decoded; this item "
                "was dropped. Wait for conversation.item.done of others.",
                param="item.content",
            )

    def begin(self, item: Item, event_id: str | None, sound: AudioFormat) -> bool:
        """Have the media of a new item decoded; returns whether there are any.

        Sound that came inside it, in the format `sound`, is kept for an encoder that makes rows.
        """
        self._disown(item.item_id)
        audio = self._intakes.get("audio")
        for place, part in enumerate(item.content):
            modality, data = modality_of(part), _bytes_of(part)
            is_heard_elsewhere = modality == "audio" and not (audio and audio.gives_rows)
            if modality is None or not data or is_heard_elsewhere:
                continue
            number = next(self._outbox.file_numbers)
            self._awaited[number] = _Awaited(item.item_id, place, event_id, len(data))
            self._outbox.decode(
                FileToDecode(
                    number=number,
                    modality=modality,
                    data=data,
                    max_bytes=self._context.max_media_bytes,
                    detail=part.detail if isinstance(part, PicturePart) else "auto",
                    sound=sound,
                )
            )
        parts = [a.part for a in self._awaited.values() if a.item_id == item.item_id]
        self._conversation.expect(item.item_id, parts)
        return bool(parts)

    def advance(self, event: FileDecoded | FileRefused) -> bool:
        """Take the media of a part; returns whether its item is complete with it.

        A file that is refused takes its item with it, and the client is told.
        """
        awaited = self._awaited.pop(event.number)
        item_id = awaited.item_id
        if item_id not in self._conversation:
            return False
        if isinstance(event, FileRefused):
            self._refuse(awaited, event.code, event.message)
            return False
        self._conversation.keep(item_id, awaited.part, event.media)
        if (excess := self._excess(item_id)) is not None:
            self._refuse(awaited, "too_large", excess)
            return False
        if item_id in self._conversation.expecting:
            return False
        self._outbox.say(
            ItemDone(
                item=self._conversation[item_id],
                previous_item_id=self._conversation.previous_id(item_id),
            )
        )
        self._context.drop_excess_items()
        return True

    def keep_turn(self, turn: SpokenTurn) -> tuple[str, str]:
        """Keep what a spoken turn became, and its media: rows can be made again only from them.

        Returns the key of the unit that its message is.
        """
        key, conversation = ("item", turn.item_id), self._conversation
        if turn.item_id not in conversation:
            return key
        if turn.is_inline:  # the item may have other parts, so that its unit is another
            conversation.set_transcript(turn.item_id, turn.settled.strip())
            return key
        conversation.update(replace(conversation[turn.item_id], content=turn.parts()))
        for place, media in turn.media(self._intakes.get("audio")).items():
            conversation.keep(turn.item_id, place, media)
        unit = conversation.unit(turn.item_id)
        self._context.drop_excess_items()
        return key if unit is None else unit.key

    def encoded(self, event: SpanClosed, placements: Iterable[Placement]) -> None:
        """Note how many positions a medium took in one of the sequences, and what went wrong."""
        for placement in placements:
            if placement.sequence_id == event.sequence_id:
                clip = placement.medium_at(event.span_id)
                if clip is not None:
                    clip.num_positions = event.num_positions
                    self._tell(clip, event.problem)

    def _tell(self, clip: Medium, problem: str | None) -> None:
        item_id = self._conversation.item_with(clip)
        if problem is not None and item_id is not None:
            message = f"The {clip.modality} of item '{item_id}': {problem}"
            code = f"{clip.modality}_not_understood"
            self._outbox.say(ErrorRaised(code=code, message=message, is_ours=True))

    def _refuse(self, awaited: _Awaited, code: str, message: str) -> None:
        self._outbox.say(
            ErrorRaised(
                code=code,
                message=message,
                param=f"item.content[{awaited.part}]",
                event_id=awaited.event_id,
                is_ours=False,
            )
        )
        self._context.forget(awaited.item_id)

    def _disown(self, item_id: str) -> None:
        """What is still being decoded for an item of that name isn't for a later one."""
        for awaited in self._awaited.values():
            if awaited.item_id == item_id:
                awaited.item_id = ""

    def _excess(self, item_id: str) -> str | None:
        """Return why an item would leave no room for anything else, None if it would."""
        num_bytes = sum(clip.num_bytes for clip in self._conversation.media_of(item_id))
        if num_bytes > self._context.max_media_bytes:
            return (
                f"The item's media take {num_bytes >> 20} MiB when they are decoded; a "
                f"conversation keeps at most {self._context.max_media_bytes >> 20} MiB."
            )
        unit = self._conversation.unit(item_id)
        if unit is not None and unit.num_positions > self._max_item_positions:
            return (
                f"The item takes {unit.num_positions} positions; this model takes at most "
                f"{self._max_item_positions} an item."
            )
        return None

    def _waiting_bytes(self) -> int:
        return sum(awaited.num_bytes for awaited in self._awaited.values())


def _bytes_of(part: Part) -> bytes:
    return b"" if isinstance(part, TextPart) else part.data or b""


def modality_of(part: Part) -> Modality | None:
    """Return the modality that the bytes of a part need, None for a part without bytes."""
    match part:
        case PicturePart():
            return "image"
        case VideoPart():
            return "video"
        case AudioPart(data=bytes()):
            return "audio"
        case _:
            return None
