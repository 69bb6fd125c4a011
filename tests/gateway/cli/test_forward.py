"""`sensorium forward` from its arguments to its exit status."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_model import CONFIG, checkpoint, prompt, tiny_model

from sensorium.gateway.__main__ import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory: a model in `tiny`, and an input."""
    (tmp_path / "tiny").mkdir()
    save_file(checkpoint(tiny_model()), tmp_path / "tiny" / "model.safetensors")
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(CONFIG))
    save_file({"input_ids": torch.tensor(prompt(3, 20))}, tmp_path / "in.safetensors")
    (tmp_path / "sensorium.toml").write_text("[engine]\nthreads = 1\nblock_size = 4\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


ARGUMENTS = ["forward", "--model", "tiny", "in.safetensors", "out.safetensors"]


def test_options_reach_the_engine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--hidden", "embeds,last", "--dtype", "float32", "--cache-dtype", "float8"]
    options += ["--weights", "same", "--chunk", "7", "--batch-invariant"]
    assert main([*ARGUMENTS, *options]) == 0
    assert sorted(load_file("out.safetensors")) == ["hidden.1", "hidden.embeds", "logits"]
    with safe_open("out.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["model"] == "./tiny"
    assert (metadata["dtype"], metadata["cache_dtype"]) == ("float32", "float8_e4m3fn")
    assert metadata["weights"] == "same"
    assert (metadata["max_step_tokens"], metadata["batch_invariant"]) == ("7", "true")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["logits", "[20,", "97]"]
    assert lines[-1] == f"✓ ./tiny: {20 * 4 * (97 + 2 * 32):,} bytes in out.safetensors"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hidden", "9"], "no layer '9'; there are 0 to 1"),
        (["--router"], "no routers"),
        (["--model", "./none"], "none is not a directory"),
        (["--model", "gpt-9"], "unknown model 'gpt-9'"),
    ],
)
def test_what_cannot_be_done_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main([*ARGUMENTS, "--dtype", "float32", *options]) == 1
    assert message in capsys.readouterr().err
    assert not Path("out.safetensors").exists()


def test_limit_is_in_mebibytes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = CONFIG | {"vocab_size": 1 << 20}  # the limit comes before the weights
    (folder / "tiny" / "config.json").write_text(json.dumps(config))
    assert main([*ARGUMENTS, "--max-output-mib", "79"]) == 1
    assert f"would take {80 << 20:,} bytes; the limit is {79 << 20:,}" in capsys.readouterr().err


def test_counts_must_be_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--chunk", "--max-output-mib"):
        with pytest.raises(SystemExit):
            main([*ARGUMENTS, option, "0"])
        assert option in capsys.readouterr().err


def test_other_commands_start_without_torch() -> None:
    code = (
        "import sys; from sensorium.gateway.__main__ import build_parser; build_parser(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
