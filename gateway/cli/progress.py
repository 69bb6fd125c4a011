"""A progress bar in the terminal, and plain lines where there is none."""

import shutil
import sys
import time
from types import TracebackType
from typing import Self, TextIO

_REDRAW_S = 0.1
_BAR_WIDTH = 24


class ProgressBar:
    """Shows one task after the other, each redrawn on its line.

    `update` fits `core.fetch.Progress`. Without a terminal every task is one line at its start.
    """

    def __init__(self, title: str, out: TextIO | None = None) -> None:
        self._title = title
        self._out = out or sys.stderr
        self._is_tty = self._out.isatty()
        self._task = ""
        self._drawn_at = 0.0
        self._started_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def update(self, task: str, done: int, total: int) -> None:
        """Show that `done` of `total` units of `task` are done; `total` 0 means unknown."""
        is_new = task != self._task
        self._task = task
        if not self._is_tty:
            if is_new:
                print(f"{self._title}: {task}", file=self._out, flush=True)
            return
        now = time.monotonic()
        if is_new or done == total or now - self._drawn_at >= _REDRAW_S:
            self._drawn_at = now
            self._draw(f"{self._title}: {task} {self._measure(done, total)}")

    def clear(self) -> None:
        """Remove the bar."""
        if self._is_tty and self._task:
            self._draw("")
        self._task = ""

    def _measure(self, done: int, total: int) -> str:
        if total <= 0:
            return f"{time.monotonic() - self._started_at:.0f} s"
        filled = _BAR_WIDTH * min(done, total) // total
        return f"[{'█' * filled}{'·' * (_BAR_WIDTH - filled)}] {100 * min(done, total) // total} %"

    def _draw(self, line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        self._out.write(f"\r\x1b[K{line[:width]}")
        self._out.flush()
