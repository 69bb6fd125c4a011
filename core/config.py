"""Engine settings as frozen values with units in their names; nothing here reads files."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig:
    """Which models to run: a name from `core/sources.py`'s pins, or a directory.

    This is the TOML section a user edits to run other models. `speech` and `pictures` hear and see
    for a decoder whose checkpoint has no encoders of its own; "" leaves a sense out.

    `dtype` is what is computed in, `weights` how matrices are kept: "same" as `dtype`, or "int8" or
    "int4" groups (CPU only; "auto" takes the groups of a quantised checkpoint as they are).
    `residual_dtype` is the type of the residual stream of families that keep it apart (Muse).
    """

    decoder: str = "smollm2-135m-instruct"
    speech: str = "whisper-tiny.en"
    pictures: str = "efficientnet-lite0"
    vad: str = "silero-vad"
    cache_dir: str = ""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    weights: Literal["auto", "same", "int8", "int4"] = "auto"
    residual_dtype: Literal["float32", "same"] = "float32"

    def by_role(self) -> tuple[tuple[str, str], ...]:
        """Return (role, name) of every model to run, without the senses that are left out."""
        roles = ("decoder", "speech", "pictures", "vad")
        return tuple((role, getattr(self, role)) for role in roles if getattr(self, role))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Budgets of the engine process.

    `cache_dtype` "auto" is what is computed in; "float8" keeps e4m3 with a scale per key and value
    vector. `window_slack` positions beyond its window are kept by a sliding-window layer, so that
    so many can be rolled back without recomputing. `batch_invariant`: a sequence's tokens depend
    on nothing else in its batch, at the price of speed. `encoder_cache_mib` of rows and words are
    kept for clips that come again; 0 keeps none.
    """

    threads: int = 0
    block_size: int = 16
    cache_mib: int = 1024
    cache_dtype: Literal["auto", "bfloat16", "float16", "float32", "float8"] = "auto"
    window_slack: int = 256
    max_step_tokens: int = 256
    max_sequences: int = 128
    batch_invariant: bool = False
    capacity: int = 0
    encoder_cache_mib: int = 256

    def __post_init__(self) -> None:
        """Refuse values that no engine can run with."""
        for name in ("block_size", "cache_mib", "max_step_tokens", "max_sequences"):
            if getattr(self, name) < 1:
                raise ValueError(f"engine.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("threads", "capacity", "window_slack", "encoder_cache_mib"):
            if getattr(self, name) < 0:
                raise ValueError(f"engine.{name} must be 0 or more, got {getattr(self, name)}")
