"""What the engine process tells of itself: which models it serves, and how busy it is. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass

from sensorium.encoders.media import Intake


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What the running engine serves.

    `intakes` says what its encoders take, by modality. `capacity` = how many people may talk at
    once in real time, estimated at warm-up.
    """

    name: str
    max_positions: int
    dtype: str
    speech_languages: tuple[str, ...]
    intakes: Mapping[str, Intake]
    capacity: int

    @property
    def speech_encoder(self) -> str:
        """Name of what hears speech, "" if nothing does."""
        return self.intakes["audio"].encoder if "audio" in self.intakes else ""

    @property
    def audio_rate_hz(self) -> int:
        """Sample rate at which sound must come; 16 kHz where nothing hears it."""
        return self.intakes["audio"].rate_hz if "audio" in self.intakes else 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """How busy the engine is; published about once a second while anything runs.

    `encoder_lag_s`: age of the oldest sound that waits for the encoder beyond its grid.
    """

    encoder_lag_s: float
    encoder_busy: float
    num_sequences: int
    num_free_blocks: int
    num_waiting_tokens: int
