"""The session's events → Realtime server events, as the plain dicts that become JSON.

Shapes that look arbitrary are what unmodified clients parse: content-part events say `text` where
items say `output_text`; `input_audio` always has a `transcript`; items hold no nulls that don't
apply; `transcription` shows no key but model, language and prompt.
"""

from collections.abc import Mapping
from typing import Any, assert_never

from sensorium.gateway import configuration, items
from sensorium.gateway import server_events as events
from sensorium.gateway.configuration import SessionConfig

OUTPUT_PLACEHOLDER: Mapping[str, Any] = {
    "format": {"type": "audio/pcm", "rate": 24_000},
    "voice": "alloy",
    "speed": 1.0,
}
"""What `audio.output` shows of a server that answers in text; clients read it unasked."""

_TYPES: Mapping[str, str] = {"pcm16": "audio/pcm", "pcmu": "audio/pcmu", "pcma": "audio/pcma"}

PARTIAL_TRANSCRIPT = "conversation.item.input_audio_transcription.partial"
"""Ours, only for clients that asked: the protocol has no word for text that may yet change."""

SessionEvent = events.SessionCreated | events.SessionUpdated
AudioEvent = (
    events.SpeechStarted | events.SpeechStopped | events.AudioCommitted | events.AudioCleared
)
ItemEvent = events.ItemAdded | events.ItemDone | events.ItemRetrieved | events.ItemDeleted
TranscriptEvent = (
    events.TranscriptDelta
    | events.TranscriptPartial
    | events.TranscriptCompleted
    | events.TranscriptFailed
)
OutputEvent = (
    events.OutputItemAdded
    | events.OutputPartAdded
    | events.OutputTextDelta
    | events.OutputTextDone
    | events.OutputPartDone
    | events.OutputItemDone
)


def session_event(event: SessionEvent) -> dict[str, Any]:
    """Return `session.created` or `session.updated` with the whole effective configuration."""
    created = isinstance(event, events.SessionCreated)
    config, extras = event.config, event.config.extras
    session: dict[str, Any] = {
        "type": "realtime",
        "object": "realtime.session",
        "id": event.session_id,
        "model": event.model,
        "expires_at": event.expires_at,
        "output_modalities": ["text"],
        "instructions": config.instructions,
        "tools": extras.get("tools") or [],
        "tool_choice": extras.get("tool_choice") or "auto",
        "max_output_tokens": _limit(config.max_output_tokens),
        "truncation": extras.get("truncation") or config.truncation,
        "tracing": extras.get("tracing"),
        "prompt": extras.get("prompt"),
        "include": extras.get("include"),
        "audio": {"input": _audio_input(config), "output": audio_output(config)},
    }
    for name in ("parallel_tool_calls", "reasoning"):
        if extras.get(name) is not None:
            session[name] = extras[name]
    return {"type": "session.created" if created else "session.updated", "session": session}


def audio_output(config: SessionConfig) -> dict[str, Any]:
    """Return `audio.output` as the client set it, over the placeholder."""
    chosen = {name: config.extras.get(f"audio.output.{name}") for name in OUTPUT_PLACEHOLDER}
    return {
        **OUTPUT_PLACEHOLDER,
        **{name: value for name, value in chosen.items() if value is not None},
    }


def _audio_input(config: SessionConfig) -> dict[str, Any]:
    sound = config.input_format
    format_: dict[str, Any] = {"type": _TYPES[sound.encoding]}
    if sound.encoding == "pcm16":
        format_["rate"] = sound.rate_hz
    transcription: dict[str, str] | None = None
    if config.transcription is not None:
        wanted = config.transcription
        named = {"model": wanted.model, "language": wanted.language, "prompt": wanted.prompt}
        transcription = {name: value for name, value in named.items() if value is not None}
    noise_reduction: dict[str, Any] | None = None
    if config.noise_reduction is not None:
        noise_reduction = {"type": config.noise_reduction}
        strength = config.extras.get("audio.input.noise_reduction.strength")
        if strength is not None:
            noise_reduction["strength"] = strength
    return {
        "format": format_,
        "transcription": transcription,
        "noise_reduction": noise_reduction,
        "turn_detection": _turn_detection(config.turn_detection),
    }


def _turn_detection(detection: configuration.TurnDetection | None) -> dict[str, Any] | None:
    """Only the keys of its own kind: clients choose their type by them."""
    if detection is None:
        return None
    shown: dict[str, Any] = {
        "type": detection.kind,
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }
    if detection.kind == "semantic_vad":
        return shown | {"eagerness": detection.eagerness}
    return shown | {
        "threshold": detection.threshold,
        "prefix_padding_ms": detection.prefix_padding_ms,
        "silence_duration_ms": detection.silence_duration_ms,
        "idle_timeout_ms": None,
    }


def audio_event(event: AudioEvent) -> dict[str, Any]:
    """Return an `input_audio_buffer.*` event."""
    match event:
        case events.SpeechStarted(item_id=item_id, audio_start_ms=at_ms):
            kind = "input_audio_buffer.speech_started"
            return {"type": kind, "item_id": item_id, "audio_start_ms": at_ms}
        case events.SpeechStopped(item_id=item_id, audio_end_ms=at_ms):
            kind = "input_audio_buffer.speech_stopped"
            return {"type": kind, "item_id": item_id, "audio_end_ms": at_ms}
        case events.AudioCommitted(item_id=item_id, previous_item_id=previous):
            kind = "input_audio_buffer.committed"
            return {"type": kind, "item_id": item_id, "previous_item_id": previous}
        case events.AudioCleared():
            return {"type": "input_audio_buffer.cleared"}
        case _:
            assert_never(event)


def item_event(event: ItemEvent) -> dict[str, Any]:
    """Return a `conversation.item.*` event."""
    match event:
        case events.ItemAdded(item=item, previous_item_id=previous):
            kind = "conversation.item.added"
            return {"type": kind, "previous_item_id": previous, "item": _item(item)}
        case events.ItemDone(item=item, previous_item_id=previous):
            kind = "conversation.item.done"
            return {"type": kind, "previous_item_id": previous, "item": _item(item)}
        case events.ItemRetrieved(item=item):
            return {"type": "conversation.item.retrieved", "item": _item(item)}
        case events.ItemDeleted(item_id=item_id):
            return {"type": "conversation.item.deleted", "item_id": item_id}
        case _:
            assert_never(event)


def _item(item: items.Item) -> dict[str, Any]:
    return {
        "id": item.item_id,
        "object": "realtime.item",
        "type": "message",
        "status": item.status,
        "role": item.role,
        "content": [_part(part, item.role) for part in item.content],
    }


def _part(part: items.Part, role: items.Role) -> dict[str, Any]:
    match part:
        case items.TextPart(text=text):
            return {"type": "output_text" if role == "assistant" else "input_text", "text": text}
        case items.AudioPart(transcript=transcript):
            return {"type": "input_audio", "transcript": transcript}
        case _:
            assert_never(part)


def transcript_event(event: TranscriptEvent) -> dict[str, Any]:
    """Return a `conversation.item.input_audio_transcription.*` event."""
    family = "conversation.item.input_audio_transcription"
    where = {"item_id": event.item_id, "content_index": 0}
    match event:
        case events.TranscriptDelta(text=text):
            return {"type": f"{family}.delta", **where, "delta": text}
        case events.TranscriptPartial(text=text):
            return {"type": PARTIAL_TRANSCRIPT, **where, "text": text}
        case events.TranscriptCompleted(text=text, seconds=seconds):
            usage = {"type": "duration", "seconds": seconds}
            return {"type": f"{family}.completed", **where, "transcript": text, "usage": usage}
        case events.TranscriptFailed(code=code, message=message):
            error = {"type": "server_error", "code": code, "message": message}
            return {"type": f"{family}.failed", **where, "error": error}
        case _:
            assert_never(event)


def output_event(event: OutputEvent) -> dict[str, Any]:
    """Return a `response.output_*` or `response.content_part.*` event."""
    where: dict[str, Any] = {"response_id": event.response_id, "output_index": event.output_index}
    if not isinstance(event, events.OutputItemAdded | events.OutputItemDone):
        where |= {"item_id": event.item_id, "content_index": event.content_index}
    match event:
        case events.OutputItemAdded(item=item):
            return {"type": "response.output_item.added", **where, "item": _item(item)}
        case events.OutputItemDone(item=item):
            return {"type": "response.output_item.done", **where, "item": _item(item)}
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
        "output": [_item(item) for item in response.output],
        "conversation_id": response.conversation_id,
        "output_modalities": ["text"],
        "max_output_tokens": _limit(response.max_output_tokens),
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
    num_input = usage.input_text_tokens + usage.input_audio_tokens
    cached_text = min(usage.cached_tokens, usage.input_text_tokens)
    return {
        "total_tokens": num_input + usage.output_tokens,
        "input_tokens": num_input,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.input_text_tokens,
            "audio_tokens": usage.input_audio_tokens,
            "image_tokens": 0,
            "cached_tokens": usage.cached_tokens,
            "cached_tokens_details": {
                "text_tokens": cached_text,
                "audio_tokens": usage.cached_tokens - cached_text,
                "image_tokens": 0,
            },
        },
        "output_token_details": {"text_tokens": usage.output_tokens, "audio_tokens": 0},
    }


def error_event(event: events.ErrorRaised) -> dict[str, Any]:
    """Return `error`; nulls are shown, since clients look for `event_id`."""
    error = {
        "type": "server_error" if event.is_ours else "invalid_request_error",
        "code": event.code,
        "message": event.message,
        "param": event.param,
        "event_id": event.event_id,
    }
    return {"type": "error", "error": error}


def _limit(max_output_tokens: int | None) -> int | str:
    return "inf" if max_output_tokens is None else max_output_tokens
