"""Changes of a session's settings: merged key by key, applied or refused as a whole."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sensorium.gateway.errors import PeerError
from sensorium.gateway.events import AudioFormat, SessionConfig, Transcription, TurnDetection


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
