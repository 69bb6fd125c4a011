"""`sensorium pull` on models that are there, damaged or unknown."""

import shutil
from pathlib import Path

import pytest

from sensorium.core.sources import resolve
from sensorium.gateway.__main__ import main

NAME = "silero-vad"
DECODER = "smollm2-135m-instruct"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return settings whose cache holds a copy of the smallest model."""
    shutil.copytree(resolve(NAME), tmp_path / NAME)
    path = tmp_path / "sensorium.toml"
    path.write_text(f'[models]\ncache_dir = "{tmp_path}"\n')
    return path


def test_model_that_is_there_is_kept(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", NAME, "--config", str(config)]) == 0
    assert capsys.readouterr().out == f"✓ {NAME} is in {config.parent / NAME}\n"


def test_verify_reads_every_byte(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = config.parent / NAME / "silero_vad.onnx"
    assert main(["pull", NAME, "--verify", "--config", str(config)]) == 0
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    assert main(["pull", NAME, "--verify", "--config", str(config)]) == 1
    assert "sensorium pull --force silero-vad" in capsys.readouterr().err


def test_unknown_model_lists_the_known_ones(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", "gpt-9", "--config", str(config)]) == 1
    assert "whisper-tiny.en" in capsys.readouterr().err


def test_every_configured_model_is_pulled_but_senses_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("silero-vad", "efficientnet-lite0"):
        shutil.copytree(resolve(name), tmp_path / name)
    path = tmp_path / "sensorium.toml"
    path.write_text(
        f'[models]\ndecoder = "{resolve(DECODER)}"\nspeech = ""\ncache_dir = "{tmp_path}"\n'
    )
    assert main(["pull", "--config", str(path)]) == 0
    said = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert said == [str(resolve(DECODER)), "efficientnet-lite0", "silero-vad"]


def test_bad_settings_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.toml").write_text("[nonsense]")
    assert main(["pull", "--config", str(tmp_path / "bad.toml")]) == 2
    assert "nonsense" in capsys.readouterr().err
