"""Realtime client events → the session's events: the rules that a schema can't say.

Every function raises PeerError with the dotted path of what is wrong.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from sensorium.gateway import client_events as events
from sensorium.gateway import items
from sensorium.gateway.camera import MAX_PICTURE_BYTES
from sensorium.gateway.dialects import realtime_types as wire
from sensorium.gateway.dialects.realtime_faults import quote
from sensorium.gateway.dialects.realtime_media import data_uri_bytes, media_bytes
from sensorium.gateway.dialects.realtime_session_decode import (
    check_modalities,
    checked_tools,
    output_extras,
    session_changes,
)
from sensorium.gateway.dialects.realtime_session_types import MAX_TEXT_CHARS
from sensorium.gateway.errors import PeerError

_PARTS_OF_ROLE: Mapping[str, tuple[str, ...]] = {
    "system": ("input_text",),
    "user": ("input_text", "input_audio", "input_image", "input_video"),
    "assistant": ("output_text", "text"),  # "text" is what Azure-shaped clients send
}
_KEYS_OF_PART: Mapping[str, tuple[str, ...]] = {
    "input_text": ("text",),
    "output_text": ("text",),
    "text": ("text",),
    "input_audio": ("audio", "transcript"),
    "input_image": ("image_url", "detail"),
    "input_video": ("video_url",),
}


def client_event(event: wire.AnyEvent | wire.VideoEvent) -> events.ClientEvent:
    """Return the session's event for a decoded wire event; raises PeerError."""
    event_id = event.event_id
    match event:
        case wire.SessionUpdate():
            return events.UpdateSession(changes=session_changes(event.session), event_id=event_id)
        case wire.AudioAppend():
            return events.AppendAudio(data=media_bytes(event.audio, "audio"), event_id=event_id)
        case wire.ImageAppend():
            data = media_bytes(event.image, "image", MAX_PICTURE_BYTES)
            return events.AppendPicture(data=data, event_id=event_id)
        case wire.AudioCommit():
            return events.CommitAudio(event_id=event_id)
        case wire.AudioClear():
            return events.ClearAudio(event_id=event_id)
        case wire.OutputAudioClear():
            return events.Nothing(event_id=event_id)
        case wire.ItemCreate():
            return events.CreateItem(
                item=_item(event.item, "item"),
                previous_item_id=event.previous_item_id,
                event_id=event_id,
            )
        case wire.ItemRetrieve():
            return events.RetrieveItem(item_id=event.item_id, event_id=event_id)
        case wire.ItemDelete():
            return events.DeleteItem(item_id=event.item_id, event_id=event_id)
        case wire.ItemTruncate():
            return events.TruncateItem(item_id=event.item_id, event_id=event_id)
        case wire.ResponseCreate():
            return _response(event.response or wire.ResponseBody(), event_id)
        case wire.ResponseCancel():
            return events.CancelResponse(response_id=event.response_id, event_id=event_id)
        case _:
            assert_never(event)


def _item(item: wire.AnyItem, path: str) -> items.Item:
    if isinstance(item, wire.Reference):
        raise PeerError(
            "invalid_value",
            "An item_reference stands only in response.input; here use an item of type 'message'.",
            param=f"{path}.type",
        )
    if not isinstance(item, wire.Message):
        raise PeerError(
            "unsupported_item",
            f"Items of type '{type(item).__struct_config__.tag}' are not supported by this model; "
            "use type 'message'.",
            param=f"{path}.type",
        )
    if item.id == "root":
        raise PeerError(
            "invalid_value", "'root' is the front of the conversation, no id.", param=f"{path}.id"
        )
    _check_length(item.content, f"{path}.content")
    parts = [
        _part(part, item.role, f"{path}.content[{index}]")
        for index, part in enumerate(item.content)
    ]
    return items.Item(
        item_id=item.id or "",
        role=item.role,
        content=tuple(parts),
        status="incomplete" if item.status == "incomplete" else "completed",
    )


def _part(part: wire.Part, role: str, path: str) -> items.Part:
    allowed = _PARTS_OF_ROLE[role]
    if part.type not in allowed:
        is_known = part.type in _KEYS_OF_PART or part.type == "output_audio"
        raise PeerError(
            "unsupported_content" if is_known else "invalid_value",
            f"Content part '{quote(part.type)}': not taken here; a message of role '{role}' takes "
            f"{' and '.join(allowed)}.",
            param=f"{path}.type",
        )
    for key in ("text", "audio", "transcript", "image_url", "video_url", "detail"):
        if getattr(part, key) is not None and key not in _KEYS_OF_PART[part.type]:
            raise PeerError(
                "unknown_parameter",
                f"'{key}' is no key of a content part of type '{part.type}'.",
                param=f"{path}.{key}",
            )
    if part.type in ("input_image", "input_video"):
        return _seen(part, path)
    if part.type != "input_audio":
        return items.TextPart(text=_required(part.text, f"{path}.text", "a string"))
    if part.audio is None and part.transcript is not None:
        return items.AudioPart(transcript=part.transcript)
    sound = _required(part.audio, f"{path}.audio", "base64 in the session's input format")
    return items.AudioPart(transcript=part.transcript, data=media_bytes(sound, f"{path}.audio"))


def _seen(part: wire.Part, path: str) -> items.Part:
    """A picture as the protocol has it; a video, ours, in the same shape."""
    kind = part.type.removeprefix("input_")
    key = f"{kind}_url"
    uri = _required(getattr(part, key), f"{path}.{key}", f"a data URI of type {kind}/…")
    data = data_uri_bytes(uri, kind, f"{path}.{key}")
    if kind == "image":
        return items.PicturePart(data=data, detail=part.detail or "auto")
    return items.VideoPart(data=data)


def _required(value: str | None, param: str, right: str) -> str:
    if value is None:
        raise PeerError(
            "missing_required_parameter",
            f"Missing required parameter: '{param}'; expected {right}.",
            param=param,
        )
    return value


def _check_length(parts: Iterable[wire.Part], path: str) -> None:
    num_chars = sum(len(part.text or "") + len(part.transcript or "") for part in parts)
    if num_chars > MAX_TEXT_CHARS:
        raise PeerError(
            "invalid_value",
            f"Invalid value for '{path}': {num_chars} characters of text in all; "
            f"expected at most {MAX_TEXT_CHARS}.",
            param=path,
        )


def _response(response: wire.ResponseBody, event_id: str | None) -> events.CreateResponse:
    check_modalities(response.output_modalities, "response.output_modalities")
    checked_tools(response.tools, "response.tools")
    if response.audio is not None:
        output_extras(response.audio.output, "response.audio.output")
    given = response.input
    limit = response.max_output_tokens
    return events.CreateResponse(
        instructions=response.instructions,
        max_output_tokens=0 if limit is None else None if limit == "inf" else limit,
        out_of_band=response.conversation == "none",
        input=None if given is None else tuple(_inputs(given)),
        metadata=response.metadata,
        event_id=event_id,
    )


def _inputs(given: Iterable[wire.AnyItem]) -> Iterable[items.Item | items.ItemReference]:
    for index, item in enumerate(given):
        if isinstance(item, wire.Reference):
            yield items.ItemReference(item_id=item.id)
        else:
            made = _item(item, f"response.input[{index}]")
            if any(getattr(part, "data", None) for part in made.content):
                raise PeerError(
                    "unsupported_content",
                    "Sound, pictures and videos can't stand in response.input itself; create the "
                    "item first and name it here by an item_reference.",
                    param=f"response.input[{index}].content",
                )
            yield made
