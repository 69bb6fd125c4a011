"""Sound for the wire: 24 kHz 16-bit mono in pieces of 20 ms, from a file or a microphone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np

from sensorium.encoders.decode import decode
from sensorium.gateway.cli.own_server import CommandError

RATE_HZ = 24_000
CHUNK_S = 0.02
_CHUNK_SAMPLES = 480
SILENCE = bytes(2 * _CHUNK_SAMPLES)
_MAX_QUEUED_CHUNKS = 500


async def file_chunks(path: str) -> AsyncIterator[bytes]:
    """Decode a file of any common format and return its pieces; the last is padded with zeros.

    Raises CommandError if it can't be read and MediaError if it can't be decoded.
    """
    try:
        content = await asyncio.to_thread(Path(path).read_bytes)
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}") from error
    samples = await decode(content, RATE_HZ)
    pcm = (np.clip(samples, -1.0, 1.0) * 32767).round().astype("<i2").tobytes()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(pcm), len(SILENCE)):
            yield pcm[start : start + len(SILENCE)].ljust(len(SILENCE), b"\0")

    return pieces()


async def microphone_chunks() -> AsyncIterator[bytes]:
    """Yield what the default microphone hears, without end; raises CommandError without one."""
    try:
        import sounddevice
    except ImportError as error:
        raise CommandError("the microphone needs: pip install 'sensorium[mic]'") from error
    except OSError as error:
        raise CommandError("PortAudio is missing; run: apt install libportaudio2") from error
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(_MAX_QUEUED_CHUNKS)

    def put(chunk: bytes) -> None:
        if not queue.full():  # a server that doesn't keep up loses sound, not our memory
            queue.put_nowait(chunk)

    def captured(data: object, frames: int, when: object, status: object) -> None:
        loop.call_soon_threadsafe(put, bytes(data))  # type: ignore[call-overload]  # a cffi buffer

    try:
        stream = sounddevice.RawInputStream(
            samplerate=RATE_HZ,
            channels=1,
            dtype="int16",
            blocksize=_CHUNK_SAMPLES,
            callback=captured,
        )
    except sounddevice.PortAudioError as error:
        raise CommandError(f"no microphone can be opened: {error}") from error
    with stream:
        while True:
            yield await queue.get()
