"""Engine settings as frozen values with units in their names; nothing here reads files."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig:
    """Which models to run: a name from `core/sources.py`'s pins, or a directory.

    This is the TOML section a user edits to run other models.
    """

    decoder: str = "smollm2-135m-instruct"
    speech: str = "whisper-tiny.en"
    vad: str = "silero-vad"
    cache_dir: str = ""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Budgets of the engine process."""

    threads: int = 0
    block_size: int = 16
    cache_mib: int = 1024
    max_step_tokens: int = 256
    max_sequences: int = 128
    capacity: int = 0

    def __post_init__(self) -> None:
        """Refuse values that no engine can run with."""
        for name in ("block_size", "cache_mib", "max_step_tokens", "max_sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"engine.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("threads", "capacity"):
            if getattr(self, name) < 0:
                raise ValueError(f"engine.{name} must be 0 (automatic) or more")
