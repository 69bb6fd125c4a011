"""Voice activity of many sessions: order per stream, batches over streams, failures contained."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from app_rig import LoudnessDetector

from sensorium.encoders.media import Samples
from sensorium.gateway.activity import MAX_ROUNDS, ActivityPool, ActivityStream


class Ear:
    """Collects what a stream is told."""

    def __init__(self, pool: ActivityPool[Any]) -> None:
        self.scores: list[float] = []
        self.failures: list[Exception] = []
        self.changed = asyncio.Event()
        self.stream: ActivityStream[Any] = pool.open(self._hear, self._fail)

    def _hear(self, scores: list[float]) -> None:
        self.scores += scores
        self.changed.set()

    def _fail(self, error: Exception) -> None:
        self.failures.append(error)
        self.changed.set()

    async def wait_for(self, count: int) -> None:
        while len(self.scores) < count and not self.failures:
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def running(detector: Any) -> AsyncIterator[ActivityPool[Any]]:
    pool: ActivityPool[Any] = ActivityPool(detector)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pool.run())
        yield pool
        task.cancel()


def windows(*levels: float) -> list[Samples]:
    return [np.full(512, level, np.float32) for level in levels]


async def test_scores_come_in_the_order_of_the_windows() -> None:
    async with running(LoudnessDetector()) as pool:
        ear = Ear(pool)
        ear.stream.submit(windows(0, 1, 0))
        ear.stream.submit(windows(1, 1))
        await ear.wait_for(5)
    assert ear.scores == [0, 1, 0, 1, 1]
    assert ear.stream.state == [5]


async def test_windows_of_all_streams_share_calls() -> None:
    detector = LoudnessDetector()
    async with running(detector) as pool:
        ears = [Ear(pool) for _ in range(10)]
        for ear in ears:
            ear.stream.submit(windows(1))
        for ear in ears:
            await ear.wait_for(1)
    assert detector.batches == [10]


async def test_long_backlog_of_one_stream_does_not_hold_up_another() -> None:
    detector = LoudnessDetector()
    async with running(detector) as pool:
        flood, other = Ear(pool), Ear(pool)
        flood.stream.submit(windows(*[1.0] * (3 * MAX_ROUNDS)))
        other.stream.submit(windows(1))
        await other.wait_for(1)
        assert len(flood.scores) <= MAX_ROUNDS
        await flood.wait_for(3 * MAX_ROUNDS)
    assert detector.batches[0] == 2


async def test_closed_stream_hears_nothing_more() -> None:
    async with running(LoudnessDetector()) as pool:
        closed, other = Ear(pool), Ear(pool)
        closed.stream.submit(windows(1))
        closed.stream.close()
        other.stream.submit(windows(1))
        await other.wait_for(1)
    assert closed.scores == []


async def test_failing_detector_ends_the_streams_of_its_batch_only() -> None:
    class Fragile(LoudnessDetector):
        def score(self, windows: list[Samples], states: list[list[int]]) -> list[float]:
            if any(np.isnan(window).any() for window in windows):
                raise RuntimeError("broken")
            return super().score(windows, states)

    async with running(Fragile()) as pool:
        bad, good = Ear(pool), Ear(pool)
        bad.stream.submit(windows(float("nan")))
        await bad.wait_for(1)
        good.stream.submit(windows(1))
        await good.wait_for(1)
    assert [str(error) for error in bad.failures] == ["broken"]
    assert good.scores == [1]
    assert good.failures == []
