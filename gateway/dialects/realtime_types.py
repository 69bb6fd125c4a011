"""Items and client events of the Realtime protocol (GA shape) as msgspec structs, with every bound.

null is accepted for whatever is optional, and means the same as absent. Keys that are not here are
refused.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from sensorium.gateway.dialects.realtime_session_types import (
    AudioOutput,
    MaxOutputTokens,
    Modalities,
    Name,
    Reasoning,
    Session,
    Strict,
    Text,
    ToolChoice,
    Tools,
    VideoSession,
)

MAX_EVENT_ID_CHARS = 512

NewId = Annotated[str, Meta(max_length=32)]
KnownId = Annotated[str, Meta(max_length=512)]
MetadataKey = Annotated[str, Meta(max_length=64)]
MetadataValue = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=16)]


class Part(Strict):
    """One content part. All kinds share the keys, as in the published types: clients send null for
    those of other kinds. Which kinds are taken is decided on decoding."""

    type: Name
    text: Text | None = None
    audio: str | None = None
    transcript: Text | None = None
    image_url: str | None = None
    video_url: str | None = None
    detail: Literal["auto", "low", "high"] | None = None


class Message(Strict, tag_field="type", tag="message"):
    """A message of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[list[Part], Meta(max_length=64)]
    id: NewId | None = None
    object: Literal["realtime.item"] | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class Reference(Strict, tag_field="type", tag="item_reference"):
    """An item that the conversation holds already."""

    id: NewId


class FunctionCall(Struct, tag_field="type", tag="function_call"):
    """Known, so that it is refused by name."""


class FunctionCallOutput(Struct, tag_field="type", tag="function_call_output"):
    """Known, so that it is refused by name."""


class McpListTools(Struct, tag_field="type", tag="mcp_list_tools"):
    """Known, so that it is refused by name."""


class McpCall(Struct, tag_field="type", tag="mcp_call"):
    """Known, so that it is refused by name."""


class McpApprovalRequest(Struct, tag_field="type", tag="mcp_approval_request"):
    """Known, so that it is refused by name."""


class McpApprovalResponse(Struct, tag_field="type", tag="mcp_approval_response"):
    """Known, so that it is refused by name."""


Unserved = (
    FunctionCall
    | FunctionCallOutput
    | McpListTools
    | McpCall
    | McpApprovalRequest
    | McpApprovalResponse
)
AnyItem = Message | Reference | Unserved


class Event(Strict, tag_field="type"):
    """What all events share. `event_id` is checked before the rest, hence Any."""

    event_id: Any = None


class SessionUpdate(Event, kw_only=True, tag="session.update"):
    """Change settings."""

    session: Session


class AudioAppend(Event, kw_only=True, tag="input_audio_buffer.append"):
    """Sound, as base64."""

    audio: str


class VideoSessionUpdate(SessionUpdate, kw_only=True, tag="session.update"):
    """Change settings, those of a camera as well."""

    session: VideoSession


class ImageAppend(Event, kw_only=True, tag="input_image_buffer.append"):
    """A frame of a camera, as base64 of a picture's file: the shape that Qwen's clients know."""

    image: str


class AudioCommit(Event, tag="input_audio_buffer.commit"):
    """The buffer is a turn."""


class AudioClear(Event, tag="input_audio_buffer.clear"):
    """Empty the buffer."""


class OutputAudioClear(Event, tag="output_audio_buffer.clear"):
    """Stop the sound that plays; there is none."""


class ItemCreate(Event, kw_only=True, tag="conversation.item.create"):
    """Insert an item."""

    item: AnyItem
    previous_item_id: KnownId | None = None


class ItemRetrieve(Event, kw_only=True, tag="conversation.item.retrieve"):
    """Show an item."""

    item_id: KnownId


class ItemDelete(Event, kw_only=True, tag="conversation.item.delete"):
    """Remove an item."""

    item_id: KnownId


class ItemTruncate(Event, kw_only=True, tag="conversation.item.truncate"):
    """Cut an item's sound."""

    item_id: KnownId
    content_index: int
    audio_end_ms: int


class ResponseAudio(Strict):
    """`response.audio`."""

    output: AudioOutput | None = None


class ResponseBody(Strict):
    """The body of `response.create`."""

    conversation: Literal["auto", "none"] | None = None
    input: Annotated[list[AnyItem], Meta(max_length=64)] | None = None
    instructions: Text | None = None
    max_output_tokens: MaxOutputTokens | None = None
    metadata: Metadata | None = None
    output_modalities: Modalities | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    prompt: dict[str, Any] | None = None
    audio: ResponseAudio | None = None


class ResponseCreate(Event, tag="response.create"):
    """Answer now."""

    response: ResponseBody | None = None


class ResponseCancel(Event, tag="response.cancel"):
    """Stop an answer."""

    response_id: KnownId | None = None


AnyEvent = (
    SessionUpdate
    | AudioAppend
    | AudioCommit
    | AudioClear
    | OutputAudioClear
    | ItemCreate
    | ItemRetrieve
    | ItemDelete
    | ItemTruncate
    | ResponseCreate
    | ResponseCancel
)
VideoEvent = VideoSessionUpdate | ImageAppend
"""Ours, only for clients that asked for video; the first instead of its namesake."""
