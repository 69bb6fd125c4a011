"""One real server for all end-to-end tests, with the embedded default behind it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Server, serve

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that is ready."""
    with serve(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="session")
def server_url(server: Server) -> str:
    """Its address, like http://127.0.0.1:8000."""
    return server.url


@pytest.fixture(scope="session")
def spoken_question() -> Path:
    """A clip in which somebody asks for the capital of France."""
    return ROOT / "samples" / "clips" / "capital_of_france.wav"
