"""`sensorium talk` against a scripted server on loopback."""

import asyncio
import base64
import json
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from sensorium.encoders.media import MediaError
from sensorium.gateway.cli import talk as module
from sensorium.gateway.cli.own_server import CommandError
from sensorium.gateway.cli.talk import talk

CREATED = {"type": "session.created", "session": {"audio": {"input": {}}}}
ANSWER: list[dict[str, Any]] = [
    {"type": "response.created", "response": {"status": "in_progress"}},
    {"type": "response.output_text.delta", "delta": "Paris."},
    {"type": "response.done", "response": {"status": "completed", "status_details": None}},
]


class Script:
    """A server that answers one typed question, or one turn of `num_appends` pieces of sound."""

    def __init__(self, num_appends: int = 10**9) -> None:
        self.num_appends = num_appends
        self.received: list[dict[str, Any]] = []
        self.path = ""
        self.key: str | None = None

    async def __call__(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.path = socket.request.path
        self.key = socket.request.headers.get("Authorization")
        await socket.send(json.dumps(CREATED))
        async for line in socket:
            event = json.loads(line)
            self.received.append(event)
            if event["type"] == "response.create" or len(self.sound) == self.num_appends:
                self.num_appends = 10**9
                for answer in ANSWER:
                    await socket.send(json.dumps(answer))

    @property
    def sound(self) -> list[bytes]:
        """All pieces of sound that came."""
        return [base64.b64decode(e["audio"]) for e in self.received if "audio" in e]


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[str]:
    """Serve the script on a free port; yields its URL."""
    async with serve(script, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/v1/realtime"


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Write 50 ms of silence at 24 kHz."""
    path = tmp_path / "clip.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(bytes(2 * 1200))
    return path


async def test_typed_question_is_answered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENSORIUM_API_KEY", "sesame")
    script = Script()
    async with serving(script) as url:
        assert await talk("mic", url=url, text="Capital of France?") == 0
    assert "model  Paris." in capsys.readouterr().out
    assert script.path == "/v1/realtime?model=default&live_transcripts=true"
    assert script.key == "Bearer sesame"
    assert [e["type"] for e in script.received] == [
        "session.update",
        "conversation.item.create",
        "response.create",
    ]


async def test_file_is_sent_in_pieces_of_20_ms_then_silence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, clip: Path
) -> None:
    monkeypatch.setattr(module, "_TRAILING_SILENCE_S", 0.04)
    script = Script(num_appends=4)
    async with serving(script) as url:
        assert await talk(str(clip), url=url) == 0
    assert len(script.sound) == 3 + 2
    assert {len(piece) for piece in script.sound} == {960}
    assert "model  Paris." in capsys.readouterr().out


async def test_file_without_speech_says_so(monkeypatch: pytest.MonkeyPatch, clip: Path) -> None:
    monkeypatch.setattr(module, "_TRAILING_SILENCE_S", 0.02)
    async with serving(Script()) as url:
        with pytest.raises(CommandError, match="no speech"):
            await talk(str(clip), url=url)


async def test_closed_session_ends_with_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def refuse(socket: ServerConnection) -> None:
        await socket.close(1013, "All 3 places are taken")

    async with serve(refuse, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with asyncio.timeout(10):
            assert await talk("mic", url=f"ws://127.0.0.1:{port}/", text="Hi") == 1
    assert "All 3 places are taken" in capsys.readouterr().err


async def test_no_server_names_the_command() -> None:
    with pytest.raises(CommandError, match="sensorium serve"):
        await talk("mic", url="ws://127.0.0.1:9/v1/realtime", text="Hi")


async def test_missing_and_foreign_files_are_refused_before_connecting(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="can't be read"):
        await talk(str(tmp_path / "none.wav"), url="ws://127.0.0.1:9/")
    (tmp_path / "x.wav").write_text("not sound")
    with pytest.raises(MediaError):
        await talk(str(tmp_path / "x.wav"), url="ws://127.0.0.1:9/")
