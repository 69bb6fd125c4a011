"""What calls take: with all cores for one, or a core for each of several at once."""

import threading
import time
from collections.abc import Callable

from sensorium.encoders.one_core import use_one_core

PASSES = 4
"""Passes of sound in a row, of each kind and round; pictures take seconds, so one."""


def timed(call: Callable[[], object], passes: int = PASSES) -> list[float]:
    """Return what each of some calls took."""
    taken = []
    for _ in range(passes):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return taken


def timed_apart(calls: list[Callable[[], object]]) -> list[float]:
    """Run each call on a thread and core of its own, all at once; time by time as `timed`."""
    barrier = threading.Barrier(len(calls) + 1)

    def run(call: Callable[[], object]) -> None:
        use_one_core()
        for _ in range(PASSES):
            barrier.wait()
            call()
            barrier.wait()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    taken = []
    for _ in range(PASSES):
        barrier.wait()
        begin = time.perf_counter()
        barrier.wait()
        taken.append(time.perf_counter() - begin)
    for thread in threads:
        thread.join()
    return taken
