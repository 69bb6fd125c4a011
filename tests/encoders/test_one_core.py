"""A thread that computes alone, in a process whose other threads don't notice."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from sensorium.encoders.one_core import use_one_core


@pytest.fixture(autouse=True)
def three_cores() -> Iterator[None]:
    """Share sums among three threads, an unusual number; put back what the other tests have."""
    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(usual)


def in_a_thread(call: Callable[[], int]) -> int:
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def alone() -> int:
    use_one_core()
    return torch.get_num_threads()


def test_only_the_calling_thread_computes_alone() -> None:
    assert in_a_thread(alone) == 1
    assert torch.get_num_threads() == 3
    assert in_a_thread(torch.get_num_threads) == 3


def test_a_thread_stays_alone_whatever_others_set() -> None:
    ready, go = threading.Event(), threading.Event()
    results: list[int] = []

    def stay() -> None:
        use_one_core()
        ready.set()
        go.wait()
        results.append(torch.get_num_threads())

    thread = threading.Thread(target=stay)
    thread.start()
    ready.wait()
    torch.set_num_threads(2)
    go.set()
    thread.join()
    assert results == [1]


def test_no_team_is_started() -> None:
    a = torch.ones(400, 400)

    def work() -> int:
        before = os_threads()
        for x in (a, a.bfloat16()):
            torch.exp(x @ x)
        return len(os_threads() - before)

    def work_alone() -> int:
        use_one_core()
        return work()

    assert in_a_thread(work) > 0
    assert in_a_thread(work_alone) == 0


def os_threads() -> set[str]:
    return {path.name for path in Path("/proc/self/task").iterdir()}
