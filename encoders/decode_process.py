"""The reader's side of decoder processes: starts one for a file, reads it, ends it.

A child is trusted as little as the file it has read: what it sends is checked and counted here.
"""

import asyncio
import contextlib
import json
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from io import FileIO

import numpy as np

from sensorium.encoders.decode_job import Job
from sensorium.encoders.media import MediaError, MediaFrame, Pts

logger = logging.getLogger(__name__)

MAX_WORKING = 2
"""Decoders that run at once. One whose reader is busy elsewhere doesn't count: it waits, too."""
MAX_LIVE = 8
"""Decoders that exist at once, with those that wait for their readers."""
_SLICE_BYTES = 1 << 20
_LINE_BYTES = 1 << 12
_CLOSE_S = 2.0
_MODALITIES = {"audio": "float32", "image": "uint8", "video": "uint8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a child ended: its exit code (below 0 a signal) and what it used, `max_rss_kib` as peak.

    The peak begins at what the fork shares with its server.
    """

    exit_code: int
    cpu_s: float
    max_rss_kib: int


class Decoders:
    """Decodes files, each in a process of its own, forked from one that is kept warm.

    It may be used from several event loops, the bounds holding in each. `close` ends all of it;
    whoever uses it afterwards starts it again. When this process ends, the decoders do.
    """

    def __init__(self, max_working: int = MAX_WORKING, max_live: int = MAX_LIVE) -> None:
        self._max_working = max_working
        self._max_live = max_live
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._places: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Places] = (
            weakref.WeakKeyDictionary()
        )
        self.last_end: End | None = None
        """Of the child that was read to its end last."""

    async def warm(self) -> None:
        """Start the process that is forked from, so that the first file needn't wait for it."""
        await asyncio.to_thread(self._started)

    def close(self) -> None:
        """End all processes; takes some milliseconds."""
        with self._lock:
            control, server = self._control, self._server
            self._control = self._server = None
        if control is not None:
            control.close()
        if server is not None:
            try:
                server.wait(_CLOSE_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    async def frames(self, job: Job, data: bytes) -> AsyncGenerator[tuple[str, MediaFrame], None]:
        """Yield (modality, frame) of a file; raises MediaError. Close it to end the child."""
        if not data:
            raise MediaError("empty_file", "The file is empty.")
        places = self._places_here()
        async with places.live, contextlib.AsyncExitStack() as opened:
            async with places.working:
                child = await opened.enter_async_context(self._child(job, data))
            num_bytes = 0
            while True:
                async with places.working:
                    found = await child.next()
                if found is None:
                    return
                num_bytes += found[1].data.nbytes
                if num_bytes > job.max_output_bytes:
                    raise MediaError(
                        "too_large", f"The file gives more than {job.max_output_bytes} bytes."
                    )
                yield found

    @contextlib.asynccontextmanager
    async def _child(self, job: Job, data: bytes) -> "AsyncGenerator[_Child, None]":
        with _memory_file() as file:
            # In slices, and not in a thread: a cancelled thread would leave the file open.
            for start in range(0, len(data), _SLICE_BYTES):
                file.write(data[start : start + _SLICE_BYTES])
                await asyncio.sleep(0)
            control = await asyncio.to_thread(self._started)
            output, its_output = socket.socketpair()
            lease, its_lease = socket.socketpair()
            with its_output, its_lease:
                descriptors = [file.fileno(), its_output.fileno(), its_lease.fileno()]
                try:
                    socket.send_fds(control, [job.to_json().encode()], descriptors)
                except OSError:
                    output.close()
                    lease.close()
                    raise _unavailable() from None
        with contextlib.ExitStack() as unless_connected:  # a cancelled task leaves nothing open
            unless_connected.callback(output.close)
            unless_connected.callback(lease.close)
            frames, frames_writer = await asyncio.open_unix_connection(sock=output)
            unless_connected.callback(frames_writer.close)
            ends, lease_writer = await asyncio.open_unix_connection(sock=lease)
            unless_connected.pop_all()
        child = _Child(job, frames, ends)
        try:
            yield child
        finally:
            self.last_end = child.end
            await _close(lease_writer, frames_writer)

    def _started(self) -> socket.socket:
        """Return the control socket of a server that runs; blocks for some milliseconds."""
        with self._lock:
            if self._server is not None and self._server.poll() is not None:
                logger.error("the decoders' server ended with %d", self._server.returncode)
                assert self._control is not None
                self._control.close()
                self._control = self._server = None
            if self._control is None:
                self._control, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with its_end:
                    self._server = _start_server(its_end)
            return self._control

    def _places_here(self) -> "_Places":
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            live = asyncio.Semaphore(self._max_live)
            self._places[loop] = _Places(live=live, working=asyncio.Semaphore(self._max_working))
        return self._places[loop]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    live: asyncio.Semaphore
    working: asyncio.Semaphore


class _Child:
    """One decoder at work: what it says, checked, and how it ended."""

    def __init__(self, job: Job, frames: StreamReader, ends: StreamReader) -> None:
        self.end: End | None = None
        self._job = job
        self._frames = frames
        self._ends = ends
        self._waited_s = 0.0

    async def next(self) -> tuple[str, MediaFrame] | None:
        """Return its next frame, None at the good end; raises MediaError."""
        started = time.monotonic()
        max_wait_s = self._job.limits.max_wait_s
        try:
            async with asyncio.timeout(max(0.0, max_wait_s - self._waited_s)):
                return await self._next()
        except TimeoutError:
            message = f"Decoding the file took more than {max_wait_s:g} s; it was given up."
            raise MediaError("too_costly", message) from None
        finally:
            self._waited_s += time.monotonic() - started

    async def _next(self) -> tuple[str, MediaFrame] | None:
        try:
            head = json.loads(await self._frames.readline())
            if not isinstance(head, dict):
                raise ValueError("a message is an object")
            if "modality" in head:
                return await self._frame(head)
            error = MediaError(str(head["code"]), str(head["message"])) if head else None
        except (ValueError, KeyError, TypeError, OverflowError, EOFError, ConnectionError):
            # ValueError: no line of JSON; EOFError: cut off in a frame; the rest: it lies.
            error = None
            head = None
        self.end = await self._ended()
        if error is not None:
            raise error
        if head is None:
            raise self._crashed(self.end)
        return None

    async def _frame(self, head: dict[str, object]) -> tuple[str, MediaFrame]:
        """Read the values of a frame; raises ValueError for what isn't one."""
        modality, pts, rate_hz = head["modality"], head["pts"], head["rate_hz"]
        dtype, shape = _MODALITIES[str(modality)], head["shape"]
        if not isinstance(shape, list) or not isinstance(pts, int) or not isinstance(rate_hz, int):
            raise ValueError("a frame's pts, rate and shape are numbers")
        if head["dtype"] != dtype or rate_hz < 1 or not all(type(n) is int for n in shape):
            raise ValueError("a frame of another type")
        num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
        if min(shape) < 1 or num_bytes > self._job.max_output_bytes:
            raise ValueError("a frame of no or too many values")
        values = await self._frames.readexactly(num_bytes)
        data = np.frombuffer(values, dtype).reshape(shape)
        return str(modality), MediaFrame(pts=Pts(pts), rate_hz=rate_hz, data=data)

    async def _ended(self) -> End | None:
        line = await self._ends.readline()
        return End(**json.loads(line)) if line else None

    def _crashed(self, end: End | None) -> MediaError:
        """Say why a child ended without a word."""
        if end is None:
            return _unavailable()
        max_cpu_s = self._job.limits.max_cpu_s
        if end.exit_code == -signal.SIGXCPU or end.cpu_s >= max_cpu_s:
            return MediaError("too_costly", f"Decoding the file takes more than {max_cpu_s} s.")
        return MediaError("damaged", "The file is damaged: its decoder ended on it.")


def _memory_file() -> FileIO:
    """Return a file in memory that a child can seek in, and nobody can reach by a name."""
    return FileIO(os.memfd_create("media"), "r+")


def _start_server(control: socket.socket) -> subprocess.Popen[bytes]:
    descriptor = control.fileno()
    return subprocess.Popen(
        [sys.executable, "-m", "sensorium.encoders.decode_server", str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[descriptor],
        # No secrets, and no threads, which a fork would lose.
        env={"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,  # Ctrl-C is ours to answer
    )


async def _close(*writers: StreamWriter) -> None:
    for writer in writers:
        writer.close()
    for writer in writers:
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def _unavailable() -> MediaError:
    return MediaError("decoder_unavailable", "No decoder could be started; try again later.")
