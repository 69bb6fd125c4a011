"""A server that lives as long as a command needs it."""

import signal
import sys
from pathlib import Path

import pytest

from sensorium.gateway.cli.own_server import (
    CommandError,
    OwnServer,
    authorization,
    free_port,
    is_port_taken,
    is_ready,
)

READY = """
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Ready).serve_forever()
"""
FAILING = "import sys; print('no weights'); sys.exit(1)"


def command(tmp_path: Path, code: str) -> list[str]:
    """Return a command that runs `code` with the server's arguments."""
    script = tmp_path / "server.py"
    script.write_text(code)
    return [sys.executable, str(script)]


def test_server_is_ready_inside_and_gone_afterwards(tmp_path: Path) -> None:
    port = free_port()
    with OwnServer(port, command(tmp_path, READY)) as server:
        assert is_ready(server.base_url)
        assert is_port_taken("127.0.0.1", port)
    assert not is_ready(server.base_url)
    assert not is_port_taken("127.0.0.1", port)


def test_server_that_fails_tells_its_last_words(tmp_path: Path) -> None:
    with (
        pytest.raises(CommandError, match="no weights"),
        OwnServer(free_port(), command(tmp_path, FAILING)),
    ):
        pass


def test_termination_stops_the_server_first(tmp_path: Path) -> None:
    former = signal.getsignal(signal.SIGTERM)
    port = free_port()
    with pytest.raises(KeyboardInterrupt), OwnServer(port, command(tmp_path, READY)):
        signal.raise_signal(signal.SIGTERM)
    assert not is_port_taken("127.0.0.1", port)
    assert signal.getsignal(signal.SIGTERM) == former


def test_key_of_the_environment_is_presented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SENSORIUM_API_KEY", raising=False)
    assert authorization() == {}
    monkeypatch.setenv("SENSORIUM_API_KEY", "sesame")
    assert authorization() == {"Authorization": "Bearer sesame"}
