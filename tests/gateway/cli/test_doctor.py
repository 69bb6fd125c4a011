"""`sensorium doctor`: what it finds, and its exit status."""

import socket
from pathlib import Path

import pytest

from sensorium.gateway.__main__ import main
from sensorium.gateway.cli import doctor
from sensorium.gateway.cli.doctor import Finding, port


def test_missing_weights_are_named_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sensorium.toml"
    path.write_text(f'[models]\ncache_dir = "{tmp_path}"\n')
    assert main(["doctor", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert "✗ weights of smollm2-135m-instruct (decoder)" in out
    assert "sensorium pull smollm2-135m-instruct" in out
    assert "✗ weights of efficientnet-lite0 (pictures)" in out
    assert "sensorium pull efficientnet-lite0" in out
    assert "✓ Python 3." in out


def test_complete_machine_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sensorium.toml"
    path.write_text("")
    assert main(["doctor", "--config", str(path)]) == 0
    assert "✗" not in capsys.readouterr().out


def test_an_extra_that_lacks_is_no_failure_and_says_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(doctor.OPTIONAL, "ocr", ("no_such_module", "reads text in pictures"))
    (finding,) = [f for f in doctor.extras() if "extra ocr" in f.what]
    assert str(finding) == (
        "– extra ocr (no_such_module), which reads text in pictures\n"
        "    optional; pip install 'sensorium[ocr]'"
    )


def test_taken_port_is_seen_and_no_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        finding = port("127.0.0.1", taken.getsockname()[1])
    assert not finding.ok
    assert not finding.needed


def test_finding_shows_its_remedy_only_where_something_lacks() -> None:
    assert str(Finding(what="ears", ok=True, remedy="grow some")) == "✓ ears"
    assert str(Finding(what="ears", ok=False, remedy="grow some")) == "✗ ears\n    grow some"
    assert str(Finding(what="ears", ok=False, needed=False)).startswith("– ears")
