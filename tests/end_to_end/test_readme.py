"""The README's examples, run as they stand there (but for the port)."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def example(language: str, server_url: str, has: str) -> str:
    """Return the README's only block of a language that has a word, against the test's server."""
    pattern = rf"```{language}\n(.*?)```"
    blocks = [
        block
        for block in re.findall(pattern, README, re.DOTALL)
        if "127.0.0.1:8000" in block and has in block
    ]
    (block,) = blocks
    return str(block).replace("http://127.0.0.1:8000", server_url)


def run(command: list[str]) -> str:
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_python_example(server_url: str) -> None:
    printed = run([sys.executable, "-c", example("python", server_url, "realtime")])
    assert "heard: What is the capital of France?" in printed
    assert "Paris" in printed


def test_tools_example(server_url: str) -> None:
    arguments = json.loads(run([sys.executable, "-c", example("python", server_url, "tools=")]))
    assert arguments.keys() == {"city", "unit"}
    assert arguments["unit"] in ("celsius", "fahrenheit")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/audio/transcriptions", r"-->.*\n.*capital of France"),
        ("/v1/chat/completions", r'"content": ?"[^"]*Paris'),
    ],
)
def test_curl_examples(server_url: str, path: str, expected: str) -> None:
    commands = example("sh", server_url, "curl").replace("\\\n", " ").splitlines()
    (command,) = [command for command in commands if path in command]
    assert re.search(expected, run(["bash", "-c", command]))
