"""Files of sound to samples: any common container and codec, decoded in a killable child process.

Decoders of media are large and old C code, and the files come from strangers. A child process
(decode_child.py) does the work under limits of memory and time; a crash there is a `MediaError`
here. Nothing of PyAV or FFmpeg is loaded into this process.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import BinaryIO

import numpy as np

from sensorium.encoders.media import MediaError, Samples

FORMATS = "wav, flac, mp3, ogg, opus, m4a, mp4, webm"

CHUNK_BYTES = 1 << 18
"""Samples read from the child at once: 4 s at 16 kHz."""
_MEDIA_ERROR_STATUS = 3
_MAX_REPORT_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLimits:
    """What one file may cost. `max_cpu_s` and `max_memory_mib` are enforced by the kernel."""

    max_sound_s: float = 14_400.0
    max_cpu_s: int = 120
    max_memory_mib: int = 2048


async def decode_stream(
    data: bytes, rate_hz: int, limits: DecodeLimits | None = None
) -> AsyncGenerator[Samples, None]:
    """Yield the sound of a file as mono float32 chunks at `rate_hz`, in order.

    Raises MediaError: `empty_file`, `unsupported_format`, `no_sound`, `too_long` (more than
    `max_sound_s`). Chunks before the error are good. Close the generator to stop.
    """
    if not data:
        raise MediaError("empty_file", "The file is empty.")
    limits = limits or DecodeLimits()
    arguments = json.dumps({"rate_hz": rate_hz, **asdict(limits)})
    with await asyncio.to_thread(_memory_file, data) as file:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "sensorium.encoders.decode_child",
            arguments,
            stdin=file,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},  # and no secrets
            start_new_session=True,  # Ctrl-C is ours to answer
            limit=CHUNK_BYTES,
        )
    try:
        async with aclosing(_chunks(child)) as chunks:
            async for samples in chunks:
                yield samples
        assert child.stderr is not None
        report = await child.stderr.read(_MAX_REPORT_BYTES)
        status = await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
    _check(status, report)


async def decode(data: bytes, rate_hz: int, limits: DecodeLimits | None = None) -> Samples:
    """Return all sound of a file, mono float32 `[n]` at `rate_hz`; raises MediaError."""
    async with aclosing(decode_stream(data, rate_hz, limits)) as chunks:
        parts = [samples async for samples in chunks]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _memory_file(data: bytes) -> BinaryIO:
    """Return a file in memory that the child can read, seek in, and not reach by any name."""
    file = open(os.memfd_create("sound"), "r+b")  # noqa: SIM115 - the caller closes it
    file.write(data)
    file.seek(0)
    return file


async def _chunks(child: asyncio.subprocess.Process) -> AsyncGenerator[Samples, None]:
    assert child.stdout is not None
    rest = b""
    while chunk := await child.stdout.read(CHUNK_BYTES):
        chunk = rest + chunk
        whole = len(chunk) - len(chunk) % 4
        rest = chunk[whole:]
        if whole:
            yield np.frombuffer(chunk[:whole], np.float32)


def _check(status: int, report: bytes) -> None:
    """Raise MediaError unless the child ended well."""
    if status == 0:
        return
    try:
        error = json.loads(report) if status == _MEDIA_ERROR_STATUS else {}
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        code = "unsupported_format"
        message = f"The file can't be decoded: it is damaged, or none of {FORMATS}."
    raise MediaError(code, message)
