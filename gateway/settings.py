"""Settings: one TOML file and the environment, read once into frozen dataclasses.

Nothing else reads files or `os.environ` for settings. `samples/sensorium.toml` shows every key.
Secrets come from the environment only.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sensorium.core.config import EngineConfig, ModelsConfig

DEFAULT_PATH = Path("sensorium.toml")
"""Read when it lies in the working directory and no other file is named."""


class SettingsError(Exception):
    """A settings file that can't be used; the message names file, key and what would be right."""


def _require(section: str, values: Any, minima: Mapping[str, float]) -> None:
    for name, minimum in minima.items():
        value = getattr(values, name)
        if value < minimum:
            raise ValueError(f"{section}.{name} must be at least {minimum:g}, got {value:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Where the gateway listens, and whom it serves.

    `allowed_origins` are origins of pages elsewhere ("https://example.org") that may use a server
    without a key. `max_sessions` 0 = what the engine measured at its warm-up. New sessions are
    refused while the oldest waiting sound is older than `max_encoder_lag_s`.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    allowed_origins: tuple[str, ...] = ()
    max_sessions: int = 0
    max_requests: int = 16
    max_encoder_lag_s: float = 2.0
    max_upload_mib: int = 25
    max_sound_s: float = 14_400.0
    max_outgoing_kib: int = 4096
    max_send_s: float = 20.0
    log_level: str = "info"

    def __post_init__(self) -> None:
        """Refuse values that can't work."""
        minima = {
            "port": 0,
            "max_sessions": 0,
            "max_requests": 1,
            "max_encoder_lag_s": 0.1,
            "max_upload_mib": 1,
            "max_sound_s": 1,
            "max_outgoing_kib": 64,
            "max_send_s": 0.1,
        }
        _require("gateway", self, minima)
        if self.port > 65_535:
            raise ValueError(f"gateway.port must be at most 65535, got {self.port}")
        levels = ("debug", "info", "warning", "error")
        if self.log_level not in levels:
            raise ValueError(f"gateway.log_level must be one of {', '.join(levels)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Limits of one realtime session.

    `max_buffered_s` bounds the sound that waits for the engine, `max_media_mib` the pictures,
    videos and clips that a conversation keeps, the oldest go first; `default_instructions` "" = the
    model's own.
    """

    max_session_s: float = 3600.0
    max_turn_s: float = 300.0
    max_output_tokens: int = 512
    max_items: int = 1000
    max_media_mib: int = 48
    idle_timeout_s: float = 1800.0
    max_buffered_s: float = 60.0
    default_instructions: str = (
        "You are Sensorium, a helpful assistant. "
        "You answer in plain English, in one or two sentences."
    )

    def __post_init__(self) -> None:
        """Refuse values that can't work."""
        minima = {
            "max_session_s": 1,
            "max_turn_s": 1,
            "max_output_tokens": 1,
            "max_items": 2,
            "max_media_mib": 16,
            "idle_timeout_s": 1,
            "max_buffered_s": 1,
        }
        _require("session", self, minima)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings; each field is a section of the file."""

    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    session: SessionSettings = field(default_factory=SessionSettings)
    models: ModelsConfig = field(default_factory=ModelsConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)


def load_settings(path: Path | None = None) -> Settings:
    """Read `path`; without one `./sensorium.toml` if it exists, else the defaults.

    Raises SettingsError.
    """
    if path is None and not DEFAULT_PATH.is_file():
        return Settings()
    source = path or DEFAULT_PATH
    try:
        text = source.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(f"There is no settings file {source}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {source} can't be read: {error}.") from None
    try:
        return parse_settings(text)
    except SettingsError as error:
        raise SettingsError(f"{source}: {error}") from None


def parse_settings(text: str) -> Settings:
    """Turn TOML into Settings; raises SettingsError, naming the known keys."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"not valid TOML: {error}") from None
    _refuse_unknown(tables, Settings, "section")
    for section in dataclasses.fields(Settings):
        table = tables.get(section.name, {})
        if not isinstance(table, dict):
            raise SettingsError(f"{section.name} must be a section: [{section.name}]")
        _refuse_unknown(table, section.type, f"key in [{section.name}]")
    try:
        return msgspec.convert(tables, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(str(error).replace("`$.", "`")) from None


def read_api_key(environment: Mapping[str, str]) -> str | None:
    """Return the key that clients must present, or None to serve loopback only."""
    return environment.get("SENSORIUM_API_KEY", "").strip() or None


def _refuse_unknown(table: Mapping[str, Any], known: Any, what: str) -> None:
    names = [f.name for f in dataclasses.fields(known)]
    for key in table:
        if key not in names:
            raise SettingsError(f"unknown {what}: {key!r}; known are {', '.join(names)}")
