"""Session settings of the Realtime protocol → changes of a SessionConfig.

Settings without effect land in `extras` under their wire names, those inside `audio` under dotted
ones ("audio.output.voice"), so that merging key by key is right; None brings back the default.
Every function raises PeerError with the dotted path of what is wrong.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from sensorium.gateway.dialects import realtime_session_types as wire
from sensorium.gateway.dialects.realtime_faults import quote
from sensorium.gateway.errors import PeerError

MAX_FREE_FORM_BYTES = 256 * 1024  # of a setting that is only kept and shown again, as JSON
MAX_FREE_FORM_DEPTH = 64

_ENCODINGS: Mapping[str, str] = {"audio/pcm": "pcm16", "audio/pcmu": "pcmu", "audio/pcma": "pcma"}
_RATES_HZ: Mapping[str, tuple[int, ...]] = {
    "audio/pcm": (24_000, 16_000, 48_000),  # the first one is the default
    "audio/pcmu": (8_000,),
    "audio/pcma": (8_000,),
}
_KEYS_OF_THE_OTHER_KIND: Mapping[str | None, tuple[str, ...]] = {
    None: (),
    "server_vad": ("eagerness",),
    "semantic_vad": ("threshold", "prefix_padding_ms", "silence_duration_ms"),
}


def session_changes(session: wire.Session) -> dict[str, Any]:
    """Return `events.UpdateSession.changes`: what the client named, by the session's names."""
    if session.type == "transcription":
        raise PeerError(
            "invalid_value",
            "Transcription sessions are not served here; use type 'realtime' with "
            "audio.input.transcription and turn_detection.create_response false.",
            param="session.type",
        )
    check_modalities(session.output_modalities, "session.output_modalities")
    changes: dict[str, Any] = {}
    if session.instructions is not None:
        changes["instructions"] = session.instructions
    if session.max_output_tokens is not None:
        limit = session.max_output_tokens
        changes["max_output_tokens"] = None if limit == "inf" else limit
    if isinstance(session, wire.VideoSession) and session.interleave is not UNSET:
        changes["interleave"] = session.interleave
    extras = _session_extras(session)
    if session.truncation is not None:
        is_word = isinstance(session.truncation, str)
        changes["truncation"] = session.truncation if is_word else "auto"
        extras["truncation"] = None if is_word else _plain(session.truncation)
    if session.audio is not None:
        changes |= _audio_input(session.audio.input or wire.AudioInput(), extras)
        extras |= output_extras(session.audio.output, "session.audio.output")
    if extras:
        changes["extras"] = extras
    return changes


def _session_extras(session: wire.Session) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if session.tools is not UNSET:
        extras["tools"] = checked_tools(session.tools, "session.tools")
    for name in ("tool_choice", "parallel_tool_calls", "reasoning", "tracing", "prompt", "include"):
        value = getattr(session, name)
        if value is not UNSET:
            extras[name] = _bounded(_plain(value), f"session.{name}")
    return extras


def checked_tools(tools: list[wire.Tool] | None, path: str) -> list[dict[str, Any]] | None:
    """Return the functions as they are shown again; other kinds of tools are refused."""
    for index, tool in enumerate(tools or ()):
        if tool.type != "function":
            raise PeerError(
                "unsupported_tool",
                f"Tools of type '{quote(tool.type)}' are not supported; use 'function'.",
                param=f"{path}[{index}].type",
            )
        if not tool.name:
            param = f"{path}[{index}].name"
            raise PeerError(
                "missing_required_parameter",
                f"Missing required parameter: '{param}'; expected the function's name.",
                param=param,
            )
    return None if tools is None else _bounded([_plain(tool) for tool in tools], path)


def _audio_input(audio: wire.AudioInput, extras: dict[str, Any]) -> dict[str, Any]:
    path = "session.audio.input"
    changes: dict[str, Any] = {}
    if audio.format is not None:
        changes["input_format"] = {
            "encoding": _ENCODINGS[audio.format.type],
            "rate_hz": _rate_hz(audio.format, f"{path}.format"),
        }
    if audio.transcription is None:
        changes["transcription"] = None
    elif audio.transcription is not UNSET:
        wanted = audio.transcription
        named = {"model": wanted.model, "language": wanted.language, "prompt": wanted.prompt}
        changes["transcription"] = {k: v for k, v in named.items() if v is not UNSET}
    if audio.noise_reduction is None:
        changes["noise_reduction"] = None
    elif audio.noise_reduction is not UNSET:
        changes["noise_reduction"] = audio.noise_reduction.type
        extras["audio.input.noise_reduction.strength"] = audio.noise_reduction.strength
    if audio.turn_detection is None:
        changes["turn_detection"] = None
    elif audio.turn_detection is not UNSET:
        changes["turn_detection"] = _turn_detection(audio.turn_detection, f"{path}.turn_detection")
    return changes


def _turn_detection(detection: wire.TurnDetection, path: str) -> dict[str, Any]:
    """Return the keys that change, by their names in `events.TurnDetection`."""
    if detection.idle_timeout_ms is not None:
        raise PeerError(
            "invalid_value",
            "idle_timeout_ms is not supported by this server yet; leave it out or send null.",
            param=f"{path}.idle_timeout_ms",
        )
    changes: dict[str, Any] = _plain(detection)
    for key in _KEYS_OF_THE_OTHER_KIND[detection.type]:
        if key in changes:
            raise PeerError(
                "unknown_parameter",
                f"'{key}' is no setting of turn_detection type '{detection.type}'.",
                param=f"{path}.{key}",
            )
    if "type" in changes:
        changes["kind"] = changes.pop("type")
    return changes


def output_extras(output: wire.AudioOutput | None, path: str) -> dict[str, Any]:
    """Return `audio.output` as extras; no sound goes out."""
    extras: dict[str, Any] = {}
    if output is None:
        return extras
    if output.format is None:
        extras["audio.output.format"] = None
    elif output.format is not UNSET:
        rate_hz = _rate_hz(output.format, f"{path}.format")
        is_pcm = output.format.type == "audio/pcm"
        shown = {"type": output.format.type} | ({"rate": rate_hz} if is_pcm else {})
        extras["audio.output.format"] = shown
    if output.voice is not UNSET:
        extras["audio.output.voice"] = _plain(output.voice)
    if output.speed is not UNSET:
        extras["audio.output.speed"] = output.speed
    return extras


def _rate_hz(wanted: wire.Format, path: str) -> int:
    allowed = _RATES_HZ[wanted.type]
    rate_hz = allowed[0] if wanted.rate is None else wanted.rate
    if rate_hz not in allowed:
        rates = " or ".join(map(str, allowed))
        raise PeerError(
            "invalid_value",
            f"Invalid value for '{path}.rate': {rate_hz}; {wanted.type} takes {rates}.",
            param=f"{path}.rate",
        )
    return rate_hz


def check_modalities(modalities: list[Any] | None, path: str) -> None:
    """Refuse two at once; ["audio"] passes, though the answer is text, and the session says so."""
    if modalities is not None and len(modalities) > 1:
        raise PeerError(
            "invalid_value",
            f"Invalid value for '{path}': expected ['text'] (['audio'] is taken as ['text']), "
            "never two at once.",
            param=path,
        )


def _plain(value: Any) -> Any:
    """Return a struct as the dict it came from, without its nulls; other values as they are."""
    if not isinstance(value, msgspec.Struct):
        return value
    return {k: v for k, v in msgspec.to_builtins(value).items() if v is not None}


def _bounded(value: Any, path: str) -> Any:
    """Let through what can be shown again: neither too large nor too deep to encode."""
    num_bytes = len(msgspec.json.encode(value))
    if num_bytes > MAX_FREE_FORM_BYTES:
        problem = f"{num_bytes} bytes as JSON; expected at most {MAX_FREE_FORM_BYTES}"
        raise PeerError("invalid_value", f"Invalid value for '{path}': {problem}.", param=path)
    level: list[Any] = [value]
    for _ in range(MAX_FREE_FORM_DEPTH):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    if level:
        problem = f"expected at most {MAX_FREE_FORM_DEPTH} levels of nesting"
        raise PeerError("invalid_value", f"Invalid value for '{path}': {problem}.", param=path)
    return value
