"""A slice of the fuzzing: as many mutated files as fit, always the same ones."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "bench/fuzz_media.py"


def test_mutated_files_of_all_formats_end_in_frames_or_errors() -> None:
    arguments = ["--files", "1000", "--seed", "2", "--at-once", "2"]
    result = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1000 files" in result.stdout
