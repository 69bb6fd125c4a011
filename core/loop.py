"""The engine process's one loop: requests in, encoders heard, a step, one message of events out.

Media goes to the encoders, everything else to the engine. Where requests come from and events go
is process.py's; what becomes of media is clips.py's.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sensorium.core.api import (
    Anticipate,
    AppendMedia,
    CloseSequence,
    CloseSpan,
    EngineEvent,
    EngineLoad,
    EngineRequest,
    Failed,
    Interrupt,
    ModelInfo,
    OpenSpan,
    Rollback,
    SequenceId,
    SpanId,
    TurnEnded,
)
from sensorium.core.clips import ClipKey, Clips, Encoded, Slots
from sensorium.core.inbox import Inbox
from sensorium.core.text.grammars import MediaMarks
from sensorium.encoders.base import Encoder, Output
from sensorium.encoders.cache import OutputCache
from sensorium.encoders.pool import EncoderPool

if TYPE_CHECKING:
    from sensorium.core.engine import EngineStats, SequenceRequest

REPORT_EVERY_S = 1.0


class Stepper(Slots, Protocol):
    """What the loop needs of an engine; `core.engine.Engine` fits and documents it."""

    def submit(self, request: "SequenceRequest") -> None: ...
    def has_work(self) -> bool: ...
    def step(self, now: float) -> list[EngineEvent]: ...
    def stats(self) -> "EngineStats": ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModels:
    """Everything that has to be in memory to serve.

    `encode` turns text into the decoder's ids; `marks` stand around a modality's rows;
    `num_encoder_threads` may encode at the same time; `encoder_cache_mib` of what they have made
    are kept.
    """

    engine: Stepper
    encoders: Mapping[str, Encoder[Any]]
    encode: Callable[[str], list[int]]
    info: ModelInfo
    marks: Mapping[str, MediaMarks] = field(default_factory=dict)
    num_encoder_threads: int = 1
    encoder_cache_mib: int = 0


class EngineLoop:
    """Drives the engine and its encoders until `stop`.

    `receive` and `stop` may be called by any thread, the rest by the loop's own. `publish` is
    handed the events of one turn at once, and an EngineLoad about once a second while sequences
    are open. An exception out of `turn` or `run` means that the engine is lost.
    """

    def __init__(
        self,
        models: LoadedModels,
        *,
        publish: Callable[[Sequence[EngineEvent | EngineLoad]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = models.engine
        self._publish = publish
        self._clock = clock
        self._inbox: Inbox[EngineRequest | Encoded] = Inbox()
        self._interrupted: dict[SequenceId, SpanId] = {}
        self._report_at = 0.0
        self._was_idle = True
        self.pool = EncoderPool[ClipKey](
            models.encoders,
            on_output=self._on_output,
            num_threads=models.num_encoder_threads,
            cache=OutputCache(models.encoder_cache_mib * 2**20),
            clock=clock,
        )
        self._clips = Clips(self.pool, models.encoders, models.engine, models.encode, models.marks)

    def receive(self, request: EngineRequest) -> None:
        """Take a request; waits while too many others do."""
        self._inbox.put(request)

    def stop(self) -> None:
        """End `run` after the turn under way."""
        self._inbox.close()

    def run(self) -> None:
        """Turn until stopped; while nothing is due, wait for requests and encoders."""
        self.pool.start()
        try:
            while not self._inbox.closed:
                self.turn(timeout_s=self._patience_s())
                self.report()
        finally:
            self.pool.stop()

    def turn(self, *, timeout_s: float | None = 0.0) -> bool:
        """Take what has come (waiting for it up to `timeout_s`), step once, publish the events.

        Returns False if there was nothing to do. Media that waits in the pool is encoded by its
        threads, or by who drives the loop by hand through `pool.run_once`.
        """
        items = self._inbox.take(timeout_s)
        events: list[EngineEvent] = []
        for item in items:
            if isinstance(item, Encoded):
                events += self._clips.hear(item)
            else:
                self._route(item)
        stepped = self._engine.has_work()
        if stepped:
            events += self._engine.step(self._clock())
        self._drop_lost_clips(events)
        if events:
            self._publish(events)
        return stepped or bool(items)

    def report(self) -> None:
        """Publish the load if it is time: while sequences are open, and once when none is left."""
        now = self._clock()
        stats = self._engine.stats()
        is_idle, was_idle = not stats.num_sequences, self._was_idle
        self._was_idle = is_idle  # told or not: `run` waits no longer than for the next report
        if was_idle if is_idle else now < self._report_at:
            return
        self._report_at = now + REPORT_EVERY_S
        load = self.pool.load()
        report = EngineLoad(
            encoder_lag_s=load.lag_s,
            encoder_busy=load.busy,
            num_sequences=stats.num_sequences,
            num_free_blocks=stats.num_free_blocks,
            num_waiting_tokens=stats.num_waiting_tokens,
        )
        self._publish([report])

    def _route(self, request: EngineRequest) -> None:
        match request:
            case AppendMedia():
                self._clips.push(request)
                return
            case Anticipate(sequence_id=sequence_id, span_id=span_id):
                self._clips.anticipate((sequence_id, span_id))
                return
            case CloseSpan():
                self._clips.close(request)
                return
            case OpenSpan():
                self._clips.open(request)
            case Rollback(sequence_id=sequence_id, keep_through=keep):
                self._clips.drop(sequence_id, after=keep)
            case CloseSequence(sequence_id=sequence_id):
                self._clips.drop(sequence_id, after=None)
            case Interrupt(sequence_id=sequence_id):
                newest = self._clips.newest(sequence_id)
                if newest is not None:
                    self._interrupted[sequence_id] = newest
        self._engine.submit(request)

    def _drop_lost_clips(self, events: Sequence[EngineEvent]) -> None:
        """Forget the clips whose spans the step has dropped: those of sequences that failed, and
        those that waited behind an interrupted generation when the `Interrupt` came."""
        for event in events:
            if isinstance(event, Failed):
                self._clips.drop(event.sequence_id, after=None)
            elif isinstance(event, TurnEnded) and event.reason == "interrupted":
                through = self._interrupted.get(event.sequence_id, event.span_id)
                self._clips.drop(event.sequence_id, after=event.span_id, through=through)
        self._interrupted.clear()

    def _on_output(self, key: ClipKey, num_ticks: int, output: Output, final: bool) -> None:
        self._inbox.put_now(Encoded(key=key, num_ticks=num_ticks, output=output, final=final))

    def _patience_s(self) -> float | None:
        """How long a turn may wait for work: not at all, until the next report, or for ever."""
        if self._engine.has_work():
            return 0.0
        return None if self._was_idle else REPORT_EVERY_S
