"""`sensorium talk`: a conversation with a running server, by file, microphone or keyboard."""

import argparse
import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI

from sensorium.encoders.media import MediaError
from sensorium.gateway.cli.dialogue import Dialogue
from sensorium.gateway.cli.own_server import CommandError, authorization
from sensorium.gateway.cli.screen import Screen
from sensorium.gateway.cli.sound import CHUNK_S, SILENCE, file_chunks, microphone_chunks

DEFAULT_URL = "ws://127.0.0.1:8000/v1/realtime"
_TRAILING_SILENCE_S = 2.0
"""After a file: long enough for the server to notice that nobody speaks any more."""
_CONNECT_S = 10.0


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "talk",
        help="talk to a running server by file, microphone or text",
        description="Stream sound at speaking pace; see words while they are spoken, then answers.",
    )
    parser.add_argument(
        "source", nargs="?", default="mic", metavar="FILE|mic", help="sound (default: mic)"
    )
    parser.add_argument("--text", help="ask in writing instead")
    parser.add_argument("--url", default=DEFAULT_URL, help=f"server (default: {DEFAULT_URL})")
    parser.add_argument("--model", default="default", help="model to talk to")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Hold the conversation; returns 1 if it failed or nothing was answered."""
    try:
        return asyncio.run(talk(args.source, url=args.url, model=args.model, text=args.text))
    except KeyboardInterrupt:
        print()
        return 0
    except (CommandError, MediaError) as error:
        print(error, file=sys.stderr)
        return 1


async def talk(source: str, *, url: str, model: str = "default", text: str | None = None) -> int:
    """Connect, converse until the source is exhausted and answered; returns an exit status.

    Raises CommandError if there is no server or no such sound, MediaError for a bad file.
    """
    dialogue = Dialogue(Screen(sys.stdout))
    answered = asyncio.Event()
    chunks = None
    if text is None:
        chunks = microphone_chunks() if source == "mic" else await file_chunks(source)
    socket = await _connect(f"{url}?{urlencode({'model': model, 'live_transcripts': 'true'})}", url)
    async with socket, asyncio.TaskGroup() as tasks:
        tasks.create_task(_receive(socket, dialogue, answered))
        with suppress(ConnectionClosed):  # the receiver says why
            if text is not None:
                await _ask(socket, dialogue, text, answered)
            elif chunks is not None:
                await _stream(socket, dialogue, chunks, ends=source != "mic")
            await socket.close()
    if not dialogue.num_answers and not dialogue.problems:
        raise CommandError("no speech was heard")
    return 1 if dialogue.problems else 0


async def _connect(address: str, url: str) -> ClientConnection:
    try:
        return await connect(
            address,
            additional_headers=authorization(),
            open_timeout=_CONNECT_S,
            max_size=None,
            compression=None,
        )
    except InvalidStatus as error:
        raise CommandError(
            f"the server at {url} refuses the connection with HTTP {error.response.status_code}; "
            "SENSORIUM_API_KEY holds the key it wants, if it wants one"
        ) from error
    except (OSError, InvalidURI) as error:
        raise CommandError(f"no server answers at {url} ({error}); run: sensorium serve") from error


async def _receive(socket: ClientConnection, dialogue: Dialogue, answered: asyncio.Event) -> None:
    """Follow the session to its end; sets `answered` with every answer, and at the end."""
    clock = asyncio.get_running_loop()
    with suppress(ConnectionClosed):
        async for line in socket:
            dialogue.receive(json.loads(line), clock.time())
            if dialogue.num_answers or dialogue.problems:
                answered.set()
    answered.set()
    if socket.close_code not in (1000, 1001) and not dialogue.problems:
        reason = f"the server closed the session: {socket.close_reason or socket.close_code}"
        dialogue.problems.append(reason)
        print(reason, file=sys.stderr)


async def _send(socket: ClientConnection, **event: object) -> None:
    await socket.send(json.dumps(event))


async def _configure(socket: ClientConnection) -> None:
    sound = {
        "format": {"type": "audio/pcm", "rate": 24_000},
        "transcription": {"model": "default"},
        "turn_detection": {"type": "server_vad"},
    }
    session = {"type": "realtime", "output_modalities": ["text"], "audio": {"input": sound}}
    await _send(socket, type="session.update", session=session)


async def _ask(
    socket: ClientConnection, dialogue: Dialogue, text: str, answered: asyncio.Event
) -> None:
    await _configure(socket)
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "content": content}
    await _send(socket, type="conversation.item.create", item=item)
    await _send(socket, type="response.create")
    dialogue.ask(text, asyncio.get_running_loop().time())
    await answered.wait()


async def _stream(
    socket: ClientConnection, dialogue: Dialogue, chunks: AsyncIterator[bytes], *, ends: bool
) -> None:
    """Send sound as it would be spoken, then (`ends`) silence until all of it is answered."""
    clock = asyncio.get_running_loop()
    await _configure(socket)
    dialogue.sound_began_at = clock.time()
    num_sent = 0
    async for chunk in chunks:
        await _append(socket, chunk)
        num_sent += 1
        if ends:
            await asyncio.sleep(dialogue.sound_began_at + num_sent * CHUNK_S - clock.time())
    silence_from = num_sent
    while not dialogue.problems and (
        (num_sent - silence_from) * CHUNK_S < _TRAILING_SILENCE_S or not dialogue.is_idle
    ):
        await _append(socket, SILENCE)
        num_sent += 1
        await asyncio.sleep(dialogue.sound_began_at + num_sent * CHUNK_S - clock.time())


async def _append(socket: ClientConnection, chunk: bytes) -> None:
    audio = base64.b64encode(chunk).decode()
    await _send(socket, type="input_audio_buffer.append", audio=audio)
