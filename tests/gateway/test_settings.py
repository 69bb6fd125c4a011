"""Settings: defaults, the sample file, and errors that say what would be right."""

import dataclasses
import tomllib
from pathlib import Path

import pytest

from sensorium.gateway.settings import (
    Settings,
    SettingsError,
    load_settings,
    parse_settings,
    read_api_key,
)

SAMPLE = Path(__file__).parents[2] / "samples" / "sensorium.toml"


def test_sample_shows_every_key_with_its_default() -> None:
    assert load_settings(SAMPLE) == Settings()
    tables = tomllib.loads(SAMPLE.read_text())
    for section in dataclasses.fields(Settings):
        defaults = getattr(Settings(), section.name)
        assert list(tables[section.name]) == [f.name for f in dataclasses.fields(defaults)]


def test_file_in_the_working_directory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings() == Settings()
    (tmp_path / "sensorium.toml").write_text("[gateway]\nport = 9000\n")
    assert load_settings().gateway.port == 9000


def test_missing_named_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no settings file .*absent\.toml"):
        load_settings(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gatway]\n", r"unknown section: 'gatway'; known are gateway, session, models, engine"),
        ("[gateway]\nprot = 1\n", r"unknown key in \[gateway\]: 'prot'; known are host, port"),
        ("gateway = 3\n", r"gateway must be a section"),
        ("[gateway]\nport = '1'\n", r"Expected `int`, got `str` - at `gateway\.port`"),
        ("[gateway]\nport = 70000\n", r"gateway\.port must be at most 65535, got 70000"),
        ("[gateway]\nlog_level = 'loud'\n", r"log_level must be one of debug"),
        ("[session]\nmax_turn_s = 0\n", r"session\.max_turn_s must be at least 1, got 0"),
        ("[models]\ndtype = 'int8'\n", r"dtype"),
        ("[engine]\ncache_mib = 0\n", r"engine\.cache_mib must be at least 1"),
        ("[gateway\n", r"not valid TOML"),
    ],
)
def test_bad_settings_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_settings(text)


def test_api_key_comes_from_the_environment() -> None:
    assert read_api_key({"SENSORIUM_API_KEY": " s3cret "}) == "s3cret"
    assert read_api_key({"SENSORIUM_API_KEY": ""}) is None
    assert read_api_key({}) is None
