"""Voice activity of all sessions: their windows share calls of the detector in one thread."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from sensorium.encoders.media import Samples

logger = logging.getLogger(__name__)

MAX_ROUNDS = 16
"""Windows of one stream in one trip to the thread (0.5 s of sound), so that nobody waits long."""

State = TypeVar("State")


class Detector(Protocol[State]):
    """What scores windows; `encoders.vad.SpeechDetector` fits."""

    def open(self) -> State:
        """Return the state of a new stream."""
        ...

    def score(self, windows: list[Samples], states: list[State]) -> list[float]:
        """Return the probability of speech per window, window i of stream i; updates the states."""
        ...


class ActivityStream(Generic[State]):
    """One session's windows on their way through the detector.

    `on_scores` gets probabilities in the order of the windows; `on_failure` gets what the detector
    raised, after which nothing more comes. Both are called on the event loop.
    """

    def __init__(
        self,
        pool: "ActivityPool[State]",
        state: State,
        on_scores: Callable[[list[float]], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.state = state
        self.windows: deque[Samples] = deque()
        self.on_scores = on_scores
        self.on_failure = on_failure
        self._pool = pool

    def submit(self, windows: list[Samples]) -> None:
        """Queue windows; each is scored once."""
        self.windows.extend(windows)
        self._pool.wake()

    def close(self) -> None:
        """Forget the stream; no callback comes any more."""
        self.windows.clear()
        self._pool.remove(self)


class ActivityPool(Generic[State]):
    """Scores the windows of all streams, batched, in one worker thread."""

    def __init__(self, detector: Detector[State]) -> None:
        self._detector = detector
        self._streams: set[ActivityStream[State]] = set()
        self._work = asyncio.Event()

    def open(
        self, on_scores: Callable[[list[float]], None], on_failure: Callable[[Exception], None]
    ) -> ActivityStream[State]:
        """Add a stream."""
        stream = ActivityStream(self, self._detector.open(), on_scores, on_failure)
        self._streams.add(stream)
        return stream

    def remove(self, stream: ActivityStream[State]) -> None:
        """Forget a stream (its `close` calls this)."""
        self._streams.discard(stream)

    def wake(self) -> None:
        """Tell the pool that windows wait."""
        self._work.set()

    async def run(self) -> None:
        """Score until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="activity") as thread:
            while True:
                await self._work.wait()
                self._work.clear()
                while batch := self._take():
                    await self._score(loop, thread, batch)

    async def _score(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: ThreadPoolExecutor,
        batch: list[tuple[ActivityStream[State], list[Samples]]],
    ) -> None:
        try:
            scores = await loop.run_in_executor(thread, self._score_rounds, batch)
        except (
            Exception
        ) as error:  # the thread's border: one batch's sessions end, the pool goes on
            logger.exception("voice activity failed for %s streams", len(batch))
            for stream, _ in batch:
                if stream in self._streams:
                    stream.close()
                    stream.on_failure(error)
            return
        for (stream, _), values in zip(batch, scores, strict=True):
            if stream in self._streams:
                stream.on_scores(values)

    def _take(self) -> list[tuple[ActivityStream[State], list[Samples]]]:
        batch = []
        for stream in self._streams:
            count = min(len(stream.windows), MAX_ROUNDS)
            if count:
                batch.append((stream, [stream.windows.popleft() for _ in range(count)]))
        return batch

    def _score_rounds(
        self, batch: list[tuple[ActivityStream[State], list[Samples]]]
    ) -> list[list[float]]:
        """Score round by round: the k-th window of every stream that has one, in one call."""
        scores: list[list[float]] = [[] for _ in batch]
        for k in range(max(len(windows) for _, windows in batch)):
            live = [i for i, (_, windows) in enumerate(batch) if k < len(windows)]
            values = self._detector.score(
                [batch[i][1][k] for i in live], [batch[i][0].state for i in live]
            )
            for i, value in zip(live, values, strict=True):
                scores[i].append(value)
        return scores
