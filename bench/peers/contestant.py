"""The bench's end of the line to one contestant: starts it, asks it, ends it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers.environments import RECIPES, python_of
from peers.pipe import Request, Stamps

HERE = Path(__file__).parent


@dataclass
class Contestant:
    """One engine with one set of weights: a script of this folder, run in an environment.

    `environment` is one of environments.RECIPES, or any other name for the bench's own.
    `bytes_per_step` are those of the weights that a step must read.
    """

    name: str
    script: str
    arguments: Sequence[str]
    bytes_per_step: int
    environment: str = ""
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def start(self, limit_s: float) -> None:
        """Run the script until it has loaded."""
        self._log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115 (as we live)
        python = python_of(self.environment) if self.environment in RECIPES else sys.executable
        self._process = subprocess.Popen(
            [python, HERE / self.script, *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd="/",  # vLLM's own children import from where they stand
            start_new_session=True,  # so that they end with it
        )
        self._reply(limit_s)

    @property
    def pid(self) -> int:
        """The running process's id."""
        assert self._process is not None
        return self._process.pid

    def generate(self, requests: list[Request], batch: int, limit_s: float) -> Stamps:
        """Have the requests served; RuntimeError unless each got exactly its tokens."""
        stamps: Stamps = self._ask("generate", requests, batch, limit_s)["stamps"]
        for request, times in zip(requests, stamps, strict=True):
            if len(times) != request.max_tokens:
                found = f"{len(times)} tokens came for {request.max_tokens}"
                raise RuntimeError(f"{self.name}: {found}")
        return stamps

    def profile(self, requests: list[Request], limit_s: float) -> str:
        """Return a table of operators while the requests' tokens are decoded."""
        return str(self._ask("profile", requests, len(requests), limit_s)["profile"])

    def stop(self) -> None:
        """End the process and its children, whatever they do."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _ask(
        self, call: str, requests: list[Request], batch: int, limit_s: float
    ) -> dict[str, Any]:
        """Send a call and wait for its answer."""
        assert self._process is not None
        assert self._process.stdin is not None
        fields = [[r.at_s, r.prompt, r.max_tokens] for r in requests]
        line = json.dumps({"call": call, "requests": fields, "batch": batch})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._reply(limit_s)

    def _reply(self, limit_s: float) -> dict[str, Any]:
        """Read a line; RuntimeError with the end of the log if none comes in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(limit_s, os.killpg, (self._process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        reply = json.loads(line or '{"error": "it ended, or took too long"}')
        if "error" in reply:
            log = Path(self._log.name).read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self.name}: {reply['error']}\n{log}")
        return reply
