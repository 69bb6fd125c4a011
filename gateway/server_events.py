"""What a session says to its peer, free of any wire's names. A dialect makes bytes of these."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sensorium.gateway.configuration import SessionConfig
from sensorium.gateway.items import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCreated:
    """First event of a session. `expires_at` is unix seconds."""

    session_id: str
    model: str
    expires_at: int
    config: SessionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdated:
    """The settings that the next response will use."""

    session_id: str
    model: str
    expires_at: int
    config: SessionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStarted:
    """The user began to speak; the turn will be `item_id`. ms count all sound ever appended."""

    item_id: str
    audio_start_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechStopped:
    """The user has been silent long enough; the end includes the silence window."""

    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioCommitted:
    """The buffered sound became item `item_id`."""

    item_id: str
    previous_item_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioCleared:
    """The buffered sound is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAdded:
    """An item stands in the conversation after `previous_item_id`."""

    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDone:
    """An item is complete."""

    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRetrieved:
    """Answer to `RetrieveItem`."""

    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDeleted:
    """An item is gone: the client's wish, or the oldest one of a conversation that was too long."""

    item_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptDelta:
    """Newly settled words of a spoken item, to be appended."""

    item_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptPartial:
    """The unsettled words after the settled ones, replacing the former; by opt-in."""

    item_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptCompleted:
    """The whole transcript of a spoken item; `seconds` of sound."""

    item_id: str
    text: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptFailed:
    """A spoken item has no transcript, and why."""

    item_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseUsage:
    """Token counts of one response; cached is a part of input, the three kinds add up to input."""

    input_text_tokens: int
    input_audio_tokens: int
    input_image_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response as it stands. `reason`: turn_detected, client_cancelled, max_output_tokens.

    `conversation_id` None for out-of-band ones. `error` = (code, message) of a failed one.
    `max_output_tokens` None = the server's limit.
    """

    response_id: str
    status: Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]
    output: tuple[Item, ...] = ()
    conversation_id: str | None
    max_output_tokens: int | None = None
    metadata: Mapping[str, str] | None = None
    reason: str | None = None
    error: tuple[str, str] | None = None
    usage: ResponseUsage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseCreated:
    """The model begins to answer."""

    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputItemAdded:
    """The response has a new item."""

    response_id: str
    output_index: int
    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPartAdded:
    """The item has a new, empty text part."""

    response_id: str
    item_id: str
    output_index: int
    content_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTextDelta:
    """More text of a part."""

    response_id: str
    item_id: str
    output_index: int
    text: str
    content_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDelta:
    """Text that the model writes to somebody else than the user: "self" (reasoning), "commentary".

    By opt-in; it is no part of the answer, nor of any item.
    """

    response_id: str
    channel: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDone:
    """A message of the reply to a channel ("user": the answer) is over; by opt-in.

    `end`: "eom", the model goes on; "eot", its turn is over; "cut", it was broken off.
    """

    response_id: str
    channel: str
    end: Literal["eom", "eot", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTextDone:
    """The whole text of a part."""

    response_id: str
    item_id: str
    output_index: int
    text: str
    content_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPartDone:
    """The part is complete."""

    response_id: str
    item_id: str
    output_index: int
    text: str
    content_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputItemDone:
    """The response's item is complete, or as complete as it gets."""

    response_id: str
    output_index: int
    item: Item


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseDone:
    """Nothing more comes for this response."""

    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised:
    """Something went wrong. `event_id` names the event at fault; `close_code` ends the session."""

    code: str
    message: str
    param: str | None = None
    event_id: str | None = None
    is_ours: bool = False
    close_code: int | None = None


ServerEvent = (
    SessionCreated
    | SessionUpdated
    | SpeechStarted
    | SpeechStopped
    | AudioCommitted
    | AudioCleared
    | ItemAdded
    | ItemDone
    | ItemRetrieved
    | ItemDeleted
    | TranscriptDelta
    | TranscriptPartial
    | TranscriptCompleted
    | TranscriptFailed
    | ResponseCreated
    | OutputItemAdded
    | OutputPartAdded
    | OutputTextDelta
    | OutputTextDone
    | ChannelDelta
    | ChannelDone
    | OutputPartDone
    | OutputItemDone
    | ResponseDone
    | ErrorRaised
)
