"""A session's settings, and changes of them: merged key by key, applied or refused as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sensorium.gateway.errors import PeerError


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
    when the conversation outgrows the model, "disabled" refuses instead. `interleave`: frames of a
    camera get their place at a pause of the speaker, or after so many seconds of sound; None: at
    the end of the turn. `extras` holds settings
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
    interleave: float | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)


def merged(config: SessionConfig, changes: Mapping[str, Any]) -> SessionConfig:
    """Return `config` with `changes` (see UpdateSession) applied.

    An absent key stays, None turns a feature off. A change of the kind of turn detection resets
    its other fields. Raises PeerError if the result makes no sense.
    """
    fields = dict(changes)
    if "turn_detection" in fields:
        fields["turn_detection"] = _turn_detection(config.turn_detection, fields["turn_detection"])
    if fields.get("transcription") is not None:
        fields["transcription"] = replace(
            config.transcription or Transcription(), **fields["transcription"]
        )
    if "input_format" in fields:
        fields["input_format"] = AudioFormat(**fields["input_format"])
    if "extras" in fields:
        fields["extras"] = {**config.extras, **fields["extras"]}
    return replace(config, **fields)


def _turn_detection(
    current: TurnDetection | None, changes: Mapping[str, Any] | None
) -> TurnDetection | None:
    if changes is None:
        return None
    kind = changes.get("kind")
    if current is None and kind is None:
        raise PeerError(
            "missing_required_parameter",
            "Turn detection is off; name its type ('server_vad' or 'semantic_vad') to turn it on.",
            param="session.audio.input.turn_detection.type",
        )
    if current is None or (kind is not None and kind != current.kind):
        return TurnDetection(**changes)
    return replace(current, **changes)
