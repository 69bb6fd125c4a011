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


def session_event(event: SessionEvent, *, shows_video: bool = False) -> dict[str, Any]:
    """Return `session.created` or `session.updated` with the whole effective configuration.

    `shows_video`: also what this server adds for cameras.
    """
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
        "max_output_tokens": limit_shown(config.max_output_tokens),
        "truncation": extras.get("truncation") or config.truncation,
        "tracing": extras.get("tracing"),
        "prompt": extras.get("prompt"),
        "include": extras.get("include"),
        "audio": {"input": _audio_input(config), "output": audio_output(config)},
    }
    if shows_video:
        session["interleave"] = config.interleave
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
            return {"type": kind, "previous_item_id": previous, "item": item_body(item)}
        case events.ItemDone(item=item, previous_item_id=previous):
            kind = "conversation.item.done"
            return {"type": kind, "previous_item_id": previous, "item": item_body(item)}
        case events.ItemRetrieved(item=item):
            return {"type": "conversation.item.retrieved", "item": item_body(item)}
        case events.ItemDeleted(item_id=item_id):
            return {"type": "conversation.item.deleted", "item_id": item_id}
        case _:
            assert_never(event)


def item_body(item: items.Item) -> dict[str, Any]:
    """Return an item without the bytes of its media (REALTIME 5)."""
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
        case items.PicturePart(detail=detail):
            return {"type": "input_image", "detail": detail}
        case items.VideoPart():  # shown as a kind of part that strict clients know
            return {"type": "input_image", "detail": "auto"}
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


def limit_shown(max_output_tokens: int | None) -> int | str:
    """Return a limit of tokens as the wire has it."""
    return "inf" if max_output_tokens is None else max_output_tokens
