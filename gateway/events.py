"""What a session is told by its peer and what it says, free of any wire's names.

A dialect turns bytes into client events and server events into bytes. Order is the session's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sensorium.gateway.errors import GatewayError

# --- items --------------------------------------------------------------------------------------


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


Part = TextPart | AudioPart
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


# --- configuration ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFormat:
    """Wire format of incoming sound: mono; pcm16 is little-endian, the G.711 laws are 8 kHz."""

    encoding: Literal["pcm16", "pcmu", "pcma"] = "pcm16"
    rate_hz: int = 24_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcription:
    """Input transcription wanted; `model` is the name the client asked for and sees again."""

    model: str | None = None
    language: str | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDetection:
    """How the end of a turn is found. Times in ms of media; `eagerness` only for `semantic_vad`."""

    kind: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    create_response: bool = True
    interrupt_response: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """A session's effective settings.

    `max_output_tokens` None means the server's limit. `truncation`: "auto" drops the oldest items
    when the conversation outgrows the model, "disabled" refuses instead. `extras` holds settings
    that are accepted, kept and shown again but do nothing here (voice, tracing, tools, …), in the
    dialect's own names.
    """

    instructions: str = ""
    max_output_tokens: int | None = None
    truncation: Literal["auto", "disabled"] = "auto"
    input_format: AudioFormat = field(default_factory=AudioFormat)
    transcription: Transcription | None = None
    noise_reduction: Literal["near_field", "far_field"] | None = None
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    extras: Mapping[str, Any] = field(default_factory=dict)


# --- client events ------------------------------------------------------------------------------
# `event_id` is the client's own name of the event, given back in errors; None if it gave none.


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
class CommitAudio:
    """The buffered sound is a turn."""

    event_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearAudio:
    """Throw the buffered sound away."""

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

# --- server events ------------------------------------------------------------------------------


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
    """Token counts of one response; cached is a part of input, audio and text add up to input."""

    input_text_tokens: int
    input_audio_tokens: int
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
    | OutputPartDone
    | OutputItemDone
    | ResponseDone
    | ErrorRaised
)
