"""`sensorium transcribe` against a scripted server on loopback."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sensorium.gateway.__main__ import main


class Scripted(BaseHTTPRequestHandler):
    """Answers uploads; a body that asks for it is refused."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(400 if b"refuse this" in body else 200)
        self.end_headers()
        if b"refuse this" in body:
            self.wfile.write(b'{"error": {"message": "not sound"}}')
        else:
            wants_srt = b'name="response_format"\r\n\r\nsrt' in body
            self.wfile.write(b"1\nHi" if wants_srt else b"Hi there\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """Serve the script on a free port."""
    server = HTTPServer(("127.0.0.1", 0), Scripted)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Write something to upload."""
    path = tmp_path / "clip.wav"
    path.write_bytes(b"sound")
    return path


def test_transcript_is_printed(url: str, clip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", str(clip), "--url", url]) == 0
    assert capsys.readouterr().out == "Hi there\n"


def test_format_is_asked_for(url: str, clip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", str(clip), "--format", "srt", "--url", url]) == 0
    assert capsys.readouterr().out == "1\nHi\n"


def test_refusal_is_told(url: str, clip: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clip.write_bytes(b"refuse this")
    assert main(["transcribe", str(clip), "--url", url]) == 1
    assert "clip.wav was not transcribed: not sound" in capsys.readouterr().err


def test_missing_file_and_missing_server_are_told(
    clip: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transcribe", str(clip.parent / "none.wav")]) == 1
    assert main(["transcribe", str(clip), "--url", "http://127.0.0.1:9"]) == 1
    errors = capsys.readouterr().err
    assert "none.wav can't be read" in errors
    assert "no server answers at http://127.0.0.1:9" in errors
