"""A response's events → Realtime server events, as the plain dicts that become JSON.

Content-part events say `text` where items say `output_text`: it is what unmodified clients parse.
"""

from collections.abc import Mapping
from typing import Any, assert_never

from sensorium.gateway import server_events as events
from sensorium.gateway.dialects.realtime_encode import item_body, limit_shown

OutputEvent = (
    events.OutputItemAdded
    | events.OutputPartAdded
    | events.OutputTextDelta
    | events.OutputTextDone
    | events.OutputPartDone
    | events.OutputItemDone
)
ChannelEvent = events.ChannelDelta | events.ChannelDone
"""Ours, only for clients that asked: `response.channel.delta` and `response.channel.done`."""


def output_event(event: OutputEvent) -> dict[str, Any]:
    """Return a `response.output_*` or `response.content_part.*` event."""
    where: dict[str, Any] = {"response_id": event.response_id, "output_index": event.output_index}
    if not isinstance(event, events.OutputItemAdded | events.OutputItemDone):
        where |= {"item_id": event.item_id, "content_index": event.content_index}
    match event:
        case events.OutputItemAdded(item=item):
            return {"type": "response.output_item.added", **where, "item": item_body(item)}
        case events.OutputItemDone(item=item):
            return {"type": "response.output_item.done", **where, "item": item_body(item)}
        case events.OutputPartAdded():
            part = {"type": "text", "text": ""}
            return {"type": "response.content_part.added", **where, "part": part}
        case events.OutputPartDone(text=text):
            part = {"type": "text", "text": text}
            return {"type": "response.content_part.done", **where, "part": part}
        case events.OutputTextDelta(text=text):
            return {"type": "response.output_text.delta", **where, "delta": text}
        case events.OutputTextDone(text=text):
            return {"type": "response.output_text.done", **where, "text": text}
        case _:
            assert_never(event)


def response_event(
    event: events.ResponseCreated | events.ResponseDone, output: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `response.created` or `response.done`; `output` is the session's `audio.output`."""
    created = isinstance(event, events.ResponseCreated)
    response = event.response
    body = {
        "object": "realtime.response",
        "id": response.response_id,
        "status": response.status,
        "status_details": _status_details(response),
        "output": [item_body(item) for item in response.output],
        "conversation_id": response.conversation_id,
        "output_modalities": ["text"],
        "max_output_tokens": limit_shown(response.max_output_tokens),
        "audio": {"output": {"format": output["format"], "voice": output["voice"]}},
        "metadata": response.metadata,
        "usage": None if response.usage is None else _usage(response.usage),
    }
    return {"type": "response.created" if created else "response.done", "response": body}


def _status_details(response: events.Response) -> dict[str, Any] | None:
    if response.status in ("in_progress", "completed"):
        return None
    details: dict[str, Any] = {"type": response.status}
    if response.reason is not None:
        details["reason"] = response.reason
    if response.error is not None:
        code, message = response.error
        details["error"] = {"type": "server_error", "code": code, "message": message}
    return details


def _usage(usage: events.ResponseUsage) -> dict[str, Any]:
    """Cached positions are a prefix, whose make-up isn't counted: text is assumed first."""
    num_media = usage.input_audio_tokens + usage.input_image_tokens
    num_input = usage.input_text_tokens + num_media
    cached_text = min(usage.cached_tokens, usage.input_text_tokens)
    cached_audio = min(usage.cached_tokens - cached_text, usage.input_audio_tokens)
    return {
        "total_tokens": num_input + usage.output_tokens,
        "input_tokens": num_input,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.input_text_tokens,
            "audio_tokens": usage.input_audio_tokens,
            "image_tokens": usage.input_image_tokens,
            "cached_tokens": usage.cached_tokens,
            "cached_tokens_details": {
                "text_tokens": cached_text,
                "audio_tokens": cached_audio,
                "image_tokens": usage.cached_tokens - cached_text - cached_audio,
            },
        },
        "output_token_details": {"text_tokens": usage.output_tokens, "audio_tokens": 0},
    }


def channel_event(event: ChannelEvent) -> dict[str, Any]:
    """Return what the model wrote to a channel, or that a message to it is over."""
    where = {"response_id": event.response_id, "channel": event.channel}
    match event:
        case events.ChannelDelta(text=text):
            return {"type": "response.channel.delta", **where, "delta": text}
        case events.ChannelDone(end=end):
            return {"type": "response.channel.done", **where, "end": end}
        case _:
            assert_never(event)
