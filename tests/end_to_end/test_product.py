"""The whole product on loopback, with the embedded default: real clients, real weights."""

import asyncio
import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets
from openai import AsyncOpenAI, OpenAI
from servers import Server, serve

from sensorium.core.sources import resolve
from sensorium.encoders.decode import decode

PATIENCE_S = 90
SILENCE = bytes(48 * 1000)  # one second of 24 kHz PCM16


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody asks for the capital of France, in espeak-ng's voice."""
    path = tmp_path_factory.mktemp("question") / "question.wav"
    text = "What is the capital of France?"
    subprocess.run(["espeak-ng", "-v", "en-us", "-s", "140", "-w", path, text], check=True)
    return path


async def pcm_24k(path: Path) -> bytes:
    """Return a clip as 24 kHz PCM16."""
    samples = await decode(await asyncio.to_thread(path.read_bytes), 24_000)
    return (samples * 32767).astype("<i2").tobytes()


@asynccontextmanager
async def connected(server: Server, query: str = "model=default") -> AsyncIterator[Any]:
    """A raw WebSocket whose `session.created` has been read."""
    async with websockets.connect(f"{server.realtime_url}?{query}", max_size=None) as socket:
        assert json.loads(await socket.recv())["type"] == "session.created"
        yield socket


async def until(socket: Any, *types: str) -> list[dict[str, Any]]:
    """Read events up to the first of one of `types`."""
    events = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            events.append(json.loads(await socket.recv()))
            if events[-1]["type"] in types:
                return events


async def send(socket: Any, **event: Any) -> None:
    await socket.send(json.dumps(event))


async def ask(socket: Any, text: str) -> list[dict[str, Any]]:
    """Ask by text; returns all events up to the answer's end."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    await send(socket, type="conversation.item.create", item=item)
    await send(socket, type="response.create")
    return await until(socket, "response.done")


def append(data: bytes) -> dict[str, Any]:
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode()}


async def test_spoken_question_is_answered_through_the_openai_client(
    server: Server, question: Path
) -> None:
    pcm = await pcm_24k(question) + SILENCE
    client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none")
    seen: list[str] = []
    async with client.realtime.connect(model="default") as session:
        transcription: Any = {"model": "default"}
        audio: Any = {"input": {"transcription": transcription}}
        await session.session.update(session={"type": "realtime", "audio": audio})
        for start in range(0, len(pcm), 960):
            piece = base64.b64encode(pcm[start : start + 960]).decode()
            await session.input_audio_buffer.append(audio=piece)
        answer = transcript = ""
        async with asyncio.timeout(PATIENCE_S):
            async for event in session:
                seen.append(event.type)
                if event.type == "conversation.item.input_audio_transcription.completed":
                    transcript = event.transcript
                elif event.type == "response.output_text.delta":
                    answer += event.delta
                elif event.type == "response.done":
                    break
    assert "capital of France" in transcript
    assert "Paris" in answer
    assert seen.index("input_audio_buffer.speech_started") < seen.index(
        "input_audio_buffer.speech_stopped"
    )
    assert "error" not in seen


async def test_words_come_while_the_user_speaks(server: Server, question: Path) -> None:
    async with connected(server, "model=default&live_transcripts=true") as socket:
        transcription = {"input": {"transcription": {"model": "default"}, "turn_detection": None}}
        session = {"type": "realtime", "audio": transcription}
        await send(socket, type="session.update", session=session)
        await send(socket, **append(await pcm_24k(question)))
        live = "conversation.item.input_audio_transcription.partial"
        events = await until(socket, live)
        assert events[-1]["text"].strip()  # and nothing was committed


async def test_killed_engine_fails_the_response_and_the_next_turn_works(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        async with connected(server) as socket:
            text = "Write a very long story about a dog, with many details."
            item = {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": text}],
            }
            await send(socket, type="conversation.item.create", item=item)
            await send(socket, type="response.create")
            await until(socket, "response.output_text.delta")
            os.kill(server.engine_pid, signal.SIGKILL)
            done = (await until(socket, "response.done"))[-1]["response"]
            assert done["status"] == "failed"
            assert done["status_details"]["error"]["code"] == "engine_lost"
            again = (await ask(socket, "What is the capital of France?"))[-1]["response"]
            assert again["status"] == "completed"
            server.wait_ready()
        assert "Traceback" not in server.log.read_text()


async def test_stopped_server_tells_its_sessions_and_leaves_no_traceback(tmp_path: Path) -> None:
    with serve(tmp_path) as server:
        engine_pid = server.engine_pid
        async with connected(server) as socket:
            server.process.send_signal(signal.SIGTERM)
            error = (await until(socket, "error"))[-1]["error"]
            assert error["code"] == "server_shutting_down"
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        assert server.process.wait(15) == 0
        assert "Traceback" not in server.log.read_text()
        with pytest.raises(ProcessLookupError):
            os.kill(engine_pid, 0)


def test_second_server_on_a_port_says_so(server: Server) -> None:
    port = server.url.rsplit(":", 1)[1]
    command = [sys.executable, "-m", "sensorium.gateway", "serve", "--port", port]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert port in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("damage", ["missing", "cut short"])
def test_bad_weights_name_the_command_that_helps(damage: str, tmp_path: Path) -> None:
    if damage == "cut short":
        good = resolve("smollm2-135m-instruct", None)
        bad = tmp_path / "cache" / good.name
        bad.mkdir(parents=True)
        for path in good.iterdir():
            if path.is_file():
                (bad / path.name).write_bytes(path.read_bytes()[:10_000_000])
    config = tmp_path / "sensorium.toml"
    config.write_text(f'[models]\ncache_dir = "{tmp_path / "cache"}"\n')
    command = [sys.executable, "-m", "sensorium.gateway", "serve", "--config", str(config)]
    result = subprocess.run(
        [*command, "--port", "0"], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 1
    assert "sensorium pull" in result.stderr
    assert "Traceback" not in result.stderr


BAD_FRAMES = [
    ("not JSON", "invalid_json", None),
    ('{"type": "no.such.event"}', "invalid_value", "type"),
    ('{"type": "input_audio_buffer.append", "audio": "%%%"}', "invalid_value", "audio"),
    ('{"no": "type"}', "invalid_event", "type"),
    ("[" * 100_000, "invalid_event", None),
]


async def test_bad_frames_get_an_error_each_and_the_session_goes_on(server: Server) -> None:
    async with connected(server) as socket:
        for frame, code, param in BAD_FRAMES:
            await socket.send(frame)
            error = (await until(socket, "error"))[-1]["error"]
            assert (error["code"], error["type"]) == (code, "invalid_request_error")
            assert error["param"] == param
        await socket.send(b"\x00binary")
        assert (await until(socket, "error"))[-1]["error"]["code"] == "invalid_event"
        text = "x" * 10_000_000
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        await send(socket, type="conversation.item.create", item=item, event_id="big")
        error = (await until(socket, "error"))[-1]["error"]
        assert error["event_id"] == "big"
        assert len(error["message"]) < 1000
        await send(socket, **append(b"\x01"))
        done = (await ask(socket, "Say hello."))[-1]["response"]
        assert done["status"] == "completed"


async def test_oversized_frame_ends_its_session_alone(server: Server) -> None:
    async with connected(server) as other, connected(server) as socket:
        with contextlib.suppress(websockets.ConnectionClosed):
            await socket.send('{"type": "input_audio_buffer.append", "audio": "' + "A" * 2**28)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
        assert (await ask(other, "Say hello."))[-1]["response"]["status"] == "completed"


async def test_vanished_client_leaves_nothing_behind(server: Server, question: Path) -> None:
    async with connected(server) as socket:
        await send(socket, **append(await pcm_24k(question)))
        socket.transport.abort()
    async with httpx.AsyncClient() as client, asyncio.timeout(PATIENCE_S):
        while True:
            text = (await client.get(f"{server.url}/metrics")).text
            if "sensorium_sessions_open 0.0" in text and "sensorium_engine_sequences 0.0" in text:
                break
            await asyncio.sleep(0.1)


async def test_wrong_model_is_refused_with_the_known_ones(server: Server) -> None:
    async with websockets.connect(f"{server.realtime_url}?model=nope") as socket:
        error = json.loads(await socket.recv())["error"]
        assert error["code"] == "invalid_model"
        assert "default" in error["message"]
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4000


def test_chat_completions_through_the_openai_client(server: Server) -> None:
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none")
    messages: Any = [{"role": "user", "content": "What is the capital of France?"}]
    whole = client.chat.completions.create(model="default", messages=messages)
    assert "Paris" in (whole.choices[0].message.content or "")
    pieces = client.chat.completions.create(model="default", messages=messages, stream=True)
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == whole.choices[0].message.content
    assert "default" in [model.id for model in client.models.list()]


@pytest.mark.parametrize("response_format", ["json", "text", "srt", "vtt", "verbose_json"])
def test_transcriptions_through_the_openai_client(
    server: Server, question: Path, response_format: Any
) -> None:
    client = OpenAI(base_url=f"{server.url}/v1", api_key="none")
    with question.open("rb") as file:
        result = client.audio.transcriptions.create(
            model="default", file=file, response_format=response_format
        )
    text = result if isinstance(result, str) else result.text
    assert "capital of France" in text
    if response_format in ("srt", "vtt"):
        assert "-->" in text


def test_silence_and_damaged_files_are_answered_clearly(server: Server) -> None:
    url = f"{server.url}/v1/audio/transcriptions"
    form = {"model": "default"}
    broken = httpx.post(url, files={"file": ("a.wav", b"RIFF1234WAVEfmt ")}, data=form)
    assert broken.status_code == 400
    assert broken.json()["error"]["message"]
    empty = httpx.post(url, files={"file": ("a.wav", b"")}, data=form)
    assert empty.status_code == 400
