"""Pictures and videos of items on their way into the conversation: each decoded, then kept.

Their item stands in the conversation from the start, so that what the client sends next keeps its
place; responses wait until all of them are decoded. One that can't be takes its item with it, and
the client is told.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sensorium.core.api import ModelInfo, SpanClosed
from sensorium.encoders.media import MediaFrame, Pts, Samples
from sensorium.gateway.context import Context
from sensorium.gateway.conversation import Conversation
from sensorium.gateway.errors import PeerError
from sensorium.gateway.hearing import Recording
from sensorium.gateway.items import AudioPart, Item, PicturePart, VideoPart
from sensorium.gateway.media import FileDecoded, FileRefused, FileToDecode, Medium, medium
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.placement import Placement
from sensorium.gateway.server_events import ErrorRaised, ItemDone

_SENSES = {"image": "eyes", "video": "eyes for videos", "audio": "ears"}


@dataclass(slots=True)
class _Awaited:
    """Parts of an item that are being decoded, and what the client called the event."""

    event_id: str | None
    parts: set[int] = field(default_factory=set)


class Viewing:
    """The files of one session that aren't decoded yet."""

    def __init__(
        self, outbox: Outbox, conversation: Conversation, context: Context, model: ModelInfo
    ) -> None:
        self._outbox = outbox
        self._conversation = conversation
        self._context = context
        self._intakes = model.intakes
        self._awaited: dict[str, _Awaited] = {}

    @property
    def is_busy(self) -> bool:
        """Whether an item of the conversation waits for its media."""
        return bool(self._awaited)

    @property
    def item_ids(self) -> set[str]:
        """The items that wait."""
        return set(self._awaited)

    def check(self, item: Item) -> None:
        """Raise PeerError for media that this model can't take: before anything is decoded."""
        for place, part in enumerate(item.content):
            modality = modality_of(part)
            if modality is not None and modality not in self._intakes:
                taken = " and ".join(["text", *sorted(self._intakes)])
                raise PeerError(
                    "unsupported_content",
                    f"This model has no {_SENSES[modality]}; it takes {taken}.",
                    param=f"item.content[{place}].type",
                )

    def keep_inline(self, item_id: str, part: int, samples: Samples) -> None:
        """Keep the sound of a part that came inside an item, for an encoder that makes rows."""
        intake = self._intakes["audio"]
        frame = MediaFrame(pts=Pts(0), rate_hz=intake.rate_hz, data=samples)
        self._conversation.keep(item_id, part, (medium("audio", [frame], intake),))

    def begin(self, item: Item, event_id: str | None) -> bool:
        """Have the files of a new item decoded; returns whether there are any."""
        awaited = _Awaited(event_id)
        for place, part in enumerate(item.content):
            if isinstance(part, PicturePart | VideoPart) and part.data is not None:
                awaited.parts.add(place)
                self._outbox.decode(
                    FileToDecode(
                        item_id=item.item_id,
                        part=place,
                        modality="image" if isinstance(part, PicturePart) else "video",
                        data=part.data,
                        detail=part.detail if isinstance(part, PicturePart) else "auto",
                    )
                )
        if awaited.parts:
            self._awaited[item.item_id] = awaited
        return bool(awaited.parts)

    def decoded(self, event: FileDecoded) -> bool:
        """Take the media of a part; returns whether its item is complete with it."""
        awaited = self._awaited.get(event.item_id)
        if awaited is None or event.item_id not in self._conversation:
            self._awaited.pop(event.item_id, None)  # deleted meanwhile
            return False
        self._conversation.keep(event.item_id, event.part, event.media)
        awaited.parts.discard(event.part)
        if awaited.parts:
            return False
        del self._awaited[event.item_id]
        self._outbox.say(
            ItemDone(
                item=self._conversation[event.item_id],
                previous_item_id=self._conversation.previous_id(event.item_id),
            )
        )
        self._context.drop_excess_items()
        return True

    def refused(self, event: FileRefused) -> None:
        """Tell the client what is wrong with a file, and drop its item."""
        awaited = self._awaited.pop(event.item_id, None)
        if awaited is None:
            return
        self._outbox.say(
            ErrorRaised(
                code=event.code,
                message=event.message,
                param=f"item.content[{event.part}]",
                event_id=awaited.event_id,
                is_ours=False,
            )
        )
        if event.item_id in self._conversation:
            self._context.forget(event.item_id)

    def keep_sound(self, item_id: str, recording: Recording, num_positions: int) -> None:
        """Keep a spoken turn that became rows: they can be made again only from its sound."""
        intake = self._intakes["audio"]
        frame = MediaFrame(pts=Pts(0), rate_hz=intake.rate_hz, data=recording.samples)
        clip = Medium(
            modality="audio",
            frames=(frame,),
            content=recording.sha256,
            gives_rows=True,
            num_positions=num_positions,
        )
        self._conversation.keep(item_id, 0, (clip,))
        self._context.drop_excess_items()

    def encoded(self, event: SpanClosed, placements: Iterable[Placement]) -> None:
        """Note how many positions a medium took in one of the sequences, and what went wrong."""
        for placement in placements:
            if placement.sequence_id == event.sequence_id:
                clip = placement.medium_at(event.span_id)
                if clip is not None:
                    clip.num_positions = event.num_positions
                    self._tell(clip, event.problem)

    def _tell(self, clip: Medium, problem: str | None) -> None:
        if problem is not None:
            code = f"{clip.modality}_not_understood"
            self._outbox.say(ErrorRaised(code=code, message=problem, is_ours=True))


def modality_of(part: object) -> str | None:
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
