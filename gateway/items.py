"""Items of a conversation and their parts, free of any wire's names."""

from dataclasses import dataclass
from typing import Literal

from sensorium.gateway.media import Detail


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    """Text, by the user, the system or the model."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioPart:
    """Sound; `transcript` is None until known. `data` holds inline bytes in the session's input
    format on the way in (kept until encoded, never echoed), else None."""

    transcript: str | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PicturePart:
    """A picture; `data` is its file on the way in (kept until decoded, never echoed), else None.

    `detail` says how finely it is to be seen.
    """

    data: bytes | None = None
    detail: Detail = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoPart:
    """A video and its sound; `data` as in PicturePart."""

    data: bytes | None = None


Part = TextPart | AudioPart | PicturePart | VideoPart
Role = Literal["system", "user", "assistant"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One message of the conversation. An `item_id` of "" on the way in: the session chooses."""

    item_id: str
    role: Role
    content: tuple[Part, ...]
    status: ItemStatus = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemReference:
    """An item that the conversation already holds, named by its id (input of a response)."""

    item_id: str
