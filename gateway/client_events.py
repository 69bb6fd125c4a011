"""What a session is told by its peer, free of any wire's names. A dialect makes these of bytes.

`event_id` is the client's own name of an event, given back in errors; None if it gave none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sensorium.gateway.errors import GatewayError
from sensorium.gateway.items import Item, ItemReference


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSession:
    """Change settings. `changes` maps field names of `SessionConfig` to validated values; what is
    absent stays. `transcription`, `turn_detection` and `input_format` are either None (off) or a
    mapping of *their* changed fields, merged key by key; `extras` is merged key by key too.
    """

    changes: Mapping[str, Any]
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendAudio:
    """Sound in the session's input format."""

    data: bytes
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendPicture:
    """A frame of a live camera: the file of a picture."""

    data: bytes
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAudio:
    """The buffered sound, with the frames beside it, is a turn."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearAudio:
    """Throw the buffered sound away, and the frames beside it."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateItem:
    """Insert an item after `previous_item_id` (None: at the end, "root": at the front)."""

    item: Item
    previous_item_id: str | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieveItem:
    """Show an item again."""

    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteItem:
    """Remove an item; the next response no longer sees it."""

    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateItem:
    """Cut the model's sound to what was heard; answers are text, so this gets an error."""

    item_id: str
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateResponse:
    """Answer now. Overrides hold for this response only.

    `out_of_band` leaves the conversation alone. `input` None = the conversation; else exactly these
    items. `max_output_tokens` 0 = as the session, None = the server's limit.
    """

    instructions: str | None = None
    max_output_tokens: int | None = 0
    out_of_band: bool = False
    input: tuple[Item | ItemReference, ...] | None = None
    metadata: Mapping[str, str] | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelResponse:
    """Stop a response; None means the one that writes to the conversation."""

    response_id: str | None = None
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """The dialect couldn't read an event; takes its place so that the answer keeps its order."""

    error: GatewayError
    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """A legal event with nothing to do (for example clearing output sound in a text session)."""

    event_id: str | None = None


ClientEvent = (
    UpdateSession
    | AppendAudio
    | AppendPicture
    | CommitAudio
    | ClearAudio
    | CreateItem
    | RetrieveItem
    | DeleteItem
    | TruncateItem
    | CreateResponse
    | CancelResponse
    | Malformed
    | Nothing
)
