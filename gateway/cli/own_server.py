"""A server as the command line sees it: where it is, whether it answers, and one of our own."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Self

import httpx

from sensorium.gateway.cli.progress import ProgressBar
from sensorium.gateway.settings import read_api_key

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8000
SERVE = (sys.executable, "-m", "sensorium.gateway", "serve")
_DEADLY = (signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.2
_STOP_S = 15.0
_LOG_LINES_SHOWN = 20


class CommandError(Exception):
    """A command can't go on; the message is for the person who typed it."""


def authorization() -> dict[str, str]:
    """Return the header that presents the key of the environment, if there is one."""
    key = read_api_key(os.environ)
    return {"Authorization": f"Bearer {key}"} if key else {}


def is_ready(base_url: str) -> bool:
    """Ask a server whether it is ready to serve; False too if nobody answers."""
    try:
        return httpx.get(f"{base_url}/ready", timeout=5.0).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def is_port_taken(host: str, port: int) -> bool:
    """Tell whether something listens there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((DEFAULT_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class OwnServer:
    """`sensorium serve` on this machine while the context lasts; its log goes to a temporary file.

    Entering returns once the server is ready; raises CommandError, with the end of its log, if it
    ends before that. Signals that would end this process stop the server first (they raise
    KeyboardInterrupt). Main thread only. `command` is what is run; tests run their own.
    """

    def __init__(self, port: int, command: Sequence[str] = SERVE) -> None:
        self.base_url = f"http://{DEFAULT_HOST}:{port}"
        self._command = [*command, "--host", DEFAULT_HOST, "--port", str(port)]
        self._former = {number: signal.getsignal(number) for number in _DEADLY}
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - _stop closes it
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        for number in _DEADLY:
            signal.signal(number, _interrupt)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is ours to answer
        )
        try:
            self._wait_ready()
        except BaseException:  # also Ctrl-C: no server is left behind
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def wait(self) -> None:
        """Return when the server has ended by itself; raises CommandError if that was an error."""
        assert self._process is not None
        if self._process.wait() != 0:
            raise CommandError(f"the server stopped:\n{self._last_lines()}")

    def _wait_ready(self) -> None:
        assert self._process is not None
        with ProgressBar("sensorium serve") as bar:
            while not is_ready(self.base_url):
                if self._process.poll() is not None:
                    raise CommandError(f"the server did not start:\n{self._last_lines()}")
                bar.update("loading the models and warming up", 0, 0)
                time.sleep(_POLL_S)

    def _stop(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _last_lines(self) -> str:
        self._log.seek(0)
        return "\n".join(f"  {line}" for line in self._log.read().splitlines()[-_LOG_LINES_SHOWN:])


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
