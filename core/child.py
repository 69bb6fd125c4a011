"""Where the engine runs, a process of its own or a thread: launching, waiting, killing."""

import asyncio
import functools
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from sensorium.core.process import Load, load_models, serve

COMMAND = (sys.executable, "-m", "sensorium.core.process")


class Child(Protocol):
    """A started engine at the other end of a socket."""

    @property
    def pid(self) -> int | None:
        """Its process id, None for a thread."""
        ...

    async def wait(self) -> None:
        """Return once it has ended."""
        ...

    def kill(self) -> None:
        """End it at once, if that can be done."""
        ...


Launch = Callable[[socket.socket], Awaitable[Child]]
"""Starts an engine on a socket, which is the engine's from then on."""


async def launch_process(sock: socket.socket, command: Sequence[str] = COMMAND) -> Child:
    """Start `command` with its file descriptor as last argument; it inherits nothing else."""
    with sock:
        fd = str(sock.fileno())
        process = await asyncio.create_subprocess_exec(
            *command, fd, pass_fds=(sock.fileno(),), stdin=asyncio.subprocess.DEVNULL
        )
    return _ProcessChild(process)


async def launch_thread(sock: socket.socket, load: Load = load_models) -> Child:
    """Run the engine in a thread of this process, for tests and for embedding it."""
    return _ThreadChild(functools.partial(serve, sock, load))


class _ProcessChild:
    """The engine as a child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int | None:
        return self._process.pid

    async def wait(self) -> None:
        await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


class _ThreadChild:
    """The engine as a thread: it ends once its socket is closed at the other end, no sooner."""

    pid = None

    def __init__(self, serve: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=serve, name="engine", daemon=True)
        self._thread.start()

    async def wait(self) -> None:
        await asyncio.to_thread(self._thread.join)

    def kill(self) -> None:
        pass
