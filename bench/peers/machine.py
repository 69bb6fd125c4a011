"""What the machine itself gives: memory, large products, and what other programs took."""

import os
import time
from pathlib import Path

import torch

from sensorium.encoders.linear import Linear

_SIDE = 2048


def read_bandwidth() -> float:
    """GB/s at which all of torch's threads read memory that no cache holds; the best of five."""
    data = torch.ones(1 << 28, dtype=torch.float32)  # 1 GiB
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        data.sum()
        best = min(best, time.perf_counter() - begin)
    return data.nbytes / best / 1e9


class Others:
    """Measures which share of the cores went to programs that the bench doesn't know (Linux)."""

    def __init__(self, pids: list[int]) -> None:
        """Begin to watch; `pids` are the bench's own, which live until `share` is called."""
        self._pids = pids
        self._begin = time.monotonic()
        self._start = self._foreign_s()

    def share(self) -> float:
        """Return the others' part of all cores' time since the beginning, 0 to 1."""
        cores = len(os.sched_getaffinity(0)) * (time.monotonic() - self._begin)
        return max(0.0, self._foreign_s() - self._start) / cores

    def _foreign_s(self) -> float:
        """Seconds that all cores have worked, less those of our processes (proc(5))."""
        ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
        busy = sum(ticks[:8]) - ticks[3] - ticks[4]  # without idle and iowait, with stolen time
        for pid in self._pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            busy -= int(fields[11]) + int(fields[12])
        return busy / os.sysconf("SC_CLK_TCK")


def multiply_rate(dtype: torch.dtype) -> float:
    """Operations per second, two a multiplication, of all of torch's threads in large products.

    The better of torch's product and one with the weight laid out beforehand; the best of three.
    """
    a, b = (torch.randn(_SIDE, _SIDE).to(dtype) for _ in range(2))
    laid_out, best = Linear(b), float("inf")
    for multiply in (lambda: a @ b, lambda: laid_out(a)):
        for _ in range(3):
            begin = time.perf_counter()
            multiply()
            best = min(best, time.perf_counter() - begin)
    return 2 * _SIDE**3 / best
