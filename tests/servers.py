"""A real server on loopback for end-to-end tests and benches: started, awaited, stopped."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

START_S = 120.0
STOP_S = 20.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running `sensorium serve`; `log` is the file that its output goes to."""

    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def realtime_url(self) -> str:
        """Return the WebSocket address without a query."""
        return self.url.replace("http://", "ws://") + "/v1/realtime"

    @property
    def engine_pid(self) -> int:
        """Return the process id of the engine, a child of the gateway."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = [int(pid) for thread in threads for pid in thread.read_text().split()]
        (engine,) = [
            pid for pid in children if b"core.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        return engine

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Wait until `/ready` answers 200; raises TimeoutError with the log's end."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/ready", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise TimeoutError(f"the server isn't ready:\n{self.log.read_text()[-2000:]}")


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serve(folder: Path, *arguments: str, port: int | None = None) -> Iterator[Server]:
    """Run a server with its log in `folder` until the block ends."""
    port = port or free_port()
    log = folder / f"server-{port}.log"
    command = [sys.executable, "-m", "sensorium.gateway", "serve", "--port", str(port), *arguments]
    environment = {k: v for k, v in os.environ.items() if k != "SENSORIUM_API_KEY"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder
        )
        server = Server(f"http://127.0.0.1:{port}", process, log)
        try:
            server.wait_ready()
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
