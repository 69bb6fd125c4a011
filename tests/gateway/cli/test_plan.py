"""`sensorium plan`: tables, JSON, wishes that can't be granted; needs neither torch nor weights."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_model

from sensorium.gateway.__main__ import main
from sensorium.gateway.cli.plan import size

MILLION_IN_FLOAT8 = ("plan", "--model", "muse-spark-open", "--cache-dtype", "float8", "--tp", "8")


def test_released_model_is_planned_group_by_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(MILLION_IN_FLOAT8) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "muse-spark-open: 1 × 1,048,576 positions on 8 GPUs"
    assert "experts 798,863,917,056 bfloat16 186.00 GiB 1,488.00 GiB experts" in lines
    assert "router 130,039,296 float32 496.06 MiB 3.88 GiB – (whole on each)" in lines
    assert "16 × full 1,048,576 65,536 4.00 GiB 32.00 GiB" in lines
    assert "14 × window 2,048 2,576 161 8.80 MiB 70.44 MiB" in lines
    assert "scales 128.90 MiB 1.01 GiB" in lines
    assert "If all layers were full, keys and values would take 124.00 GiB." in lines


def test_json_has_every_number_in_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MILLION_IN_FLOAT8, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["demand"]["tp"] == 8
    full = [group for group in plan["cache"] if group["window"] is None]
    assert [group["vector_bytes_per_gpu"] for group in full] == [4 << 30]
    assert plan["bytes_per_gpu"] == plan["weight_bytes_per_gpu"] + plan["cache_bytes_per_gpu"]
    assert plan["total_bytes"] == 8 * plan["bytes_per_gpu"]


def test_directory_needs_no_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_model.CONFIG))
    assert main(["plan", "--model", str(tmp_path), "--context", "50", "--sessions", "2"]) == 0
    out = capsys.readouterr().out
    assert f"{tmp_path}: 2 × 50 positions on 1 GPU\n" in out
    assert "window" not in out


def test_settings_say_block_size_slack_and_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "sensorium.toml"
    settings.write_text("[engine]\nblock_size = 32\nwindow_slack = 0\nmax_step_tokens = 64\n")
    assert main([*MILLION_IN_FLOAT8, "--json", "--config", str(settings)]) == 0
    blocks = [group["num_blocks"] for group in json.loads(capsys.readouterr().out)["cache"]]
    assert sorted(blocks) == [67, 67, 67, 32_768]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "dance"], "✗ dance: unknown model 'dance'"),
        (["--model", "/no/such/folder"], "/no/such/folder is not a directory"),
        (["--model", "muse-spark-open", "--tp", "5"], "possible are 1, 2, 4, 8, 16, 32, 64"),
        (["--model", "muse-spark-open", "--context", "2000000"], "more than the model's"),
    ],
)
def test_what_cannot_be_had_is_one_line_and_status_1(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("text", ["{", "[]"])
def test_damaged_configuration_is_refused(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert main(["plan", "--model", str(tmp_path)]) == 1
    assert "config.json" in capsys.readouterr().err


def test_torch_is_not_needed() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from sensorium.gateway.__main__ import main\n"
        "sys.exit(main(['plan', '--model', 'muse-spark-open']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "16 × full" in ended.stdout


def test_sizes_are_written_in_the_unit_that_suits_them() -> None:
    assert [size(n) for n in (1023, 1536, 5 << 20, 32 << 30)] == [
        "1023 B",
        "1.50 KiB",
        "5.00 MiB",
        "32.00 GiB",
    ]
