"""`sensorium demo` before it starts anything."""

import socket

import pytest

from sensorium.gateway.__main__ import main


def test_taken_port_is_refused_with_a_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["demo", "clip.wav", "--port", str(port)]) == 1
    assert f"port {port} of 127.0.0.1 is taken" in capsys.readouterr().err
