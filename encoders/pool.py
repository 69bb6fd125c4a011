"""Encoder threads beside the engine: ready media of many streams becomes one batch.

The pool owns which clips are encoded together and when. Whenever a thread is free it takes every
clip that has reached its encoder's next grid point, so under load clips gather more media between
passes and partial words come less often, by themselves. It doesn't know sequences or tokens.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from sensorium.encoders.base import ClipHints, Encoder, Output
from sensorium.encoders.cache import CacheKey, OutputCache
from sensorium.encoders.clip import Batch, Clip, PendingLimits, next_batch
from sensorium.encoders.isolation import anticipate, flush, push
from sensorium.encoders.media import MediaFrame
from sensorium.encoders.one_core import use_one_core

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
OnOutput = Callable[[Key, int, Output, bool], None]

MAX_CLIPS_TO_PREPARE = 3
"""With more clips open than these, preparing an end would take time from other people's words."""

FAILED = "The encoder failed on this clip."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """How busy the pool is.

    `lag_s`: for how long some talker's clip could have been encoded and was not; files don't count,
    they may wait. `busy`: the threads' share of time spent encoding since the last report, 0 to 1.
    """

    lag_s: float
    busy: float


class EncoderPool(Generic[Key]):
    """Batches the clips of many streams through their encoders.

    `on_output(key, num_ticks, output, final)` is called for each clip of a batch: `num_ticks`
    were taken since the last call; after `final` nothing follows for this key. It is called by a
    pool thread without a lock held, or inside `open`, `push` or `close` where a clip can't be taken
    or needs no encoder; one call may still be under way when `drop` returns. All methods may be
    called by any thread.

    Clips being closed go first, because someone waits for the answer; then the clip that has been
    ready longest, together with all others that can share its batch. Of several threads one is
    always left for talkers: a large picture takes seconds. Without `start` nothing runs
    but what the caller does through `run_once`.
    """

    def __init__(
        self,
        encoders: Mapping[str, Encoder[Any]],
        *,
        on_output: OnOutput[Key],
        num_threads: int = 1,
        limits: PendingLimits | None = None,
        cache: OutputCache | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._encoders = encoders
        self._on_output = on_output
        self._limits = limits or PendingLimits()
        self._cache = cache or OutputCache(0)
        self._clock = clock
        self._clips: dict[Key, Clip[Key]] = {}
        self._known: set[Key] = set()
        self._num_file_batches = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._busy_s = 0.0
        self._reported_at = clock()
        self._prepared = threading.Barrier(num_threads + 1)
        self._threads = [
            threading.Thread(target=self._run, name=f"encoder-{i}", daemon=True)
            for i in range(num_threads)
        ]

    def start(self) -> None:
        """Start the threads; each computes on one core, and none touches the caller's number."""
        for thread in self._threads:
            thread.start()
        self._prepared.wait()

    def stop(self) -> None:
        """Let running batches end, drop everything else and join the threads."""
        with self._changed:
            self._stopping = True
            self._known.clear()
            for clip in list(self._clips.values()):
                self._forget(clip)
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def open(
        self, key: Key, modality: str, hints: ClipHints, content: str = "", tenant: str = ""
    ) -> None:
        """Begin a clip; its key must be new.

        One that can't be taken (no encoder for its modality, hints that the encoder can't follow)
        ends at once with a `problem`. One whose `content` (the hash of all its frames) is in the
        cache gets all its output at once; its media is counted and ignored.
        """
        encoder = self._encoders.get(modality)
        if encoder is None:
            known = ", ".join(sorted(self._encoders)) or "none"
            problem = f"This server has no encoder for {modality!r} (it has: {known})."
            self._on_output(key, 0, Output(problem=problem), True)
            return
        cache_key = CacheKey.of(encoder, modality, hints, content=content, tenant=tenant)
        made_before = self._cache.find(cache_key) if content else None
        if made_before is not None:
            with self._changed:
                self._known.add(key)
            self._on_output(key, 0, made_before, False)
            return
        try:
            state = encoder.open(hints)
        except Exception:  # an encoder's fault ends this clip alone
            logger.exception("a clip can't be opened")
            self._on_output(key, 0, Output(problem=FAILED, encoder=encoder.name), True)
            return
        with self._changed:
            assert key not in self._clips, f"clip {key} is open already"
            recording = self._cache.recording()
            self._clips[key] = Clip(key, encoder, state, hints.live, cache_key, recording)

    def push(self, key: Key, frame: MediaFrame) -> None:
        """Add media to a clip; ignored once the clip is closing or gone.

        A clip that gets what its encoder doesn't take, or whose waiting media exceeds the bound,
        ends with a `problem`.
        """
        with self._changed:
            clip = self._clips.get(key)
            is_known = key in self._known
            problem = self._add(clip, frame) if clip is not None else None
        if is_known:
            self._on_output(key, len(frame.data), Output(), False)
        elif clip is not None and problem is not None:
            output = Output(problem=problem, encoder=clip.encoder.name)
            self._on_output(key, clip.num_pending, output, True)

    def close(self, key: Key, content: str = "") -> None:
        """No more media comes: encode what is left and end the clip; ignored if it is gone.

        `content` as in `open`, for a clip that became complete only now.
        """
        with self._changed:
            is_known = key in self._known
            self._known.discard(key)
            clip = self._clips.get(key)
            if clip is not None and not clip.closing:
                clip.closing, clip.pausing = True, False
                clip.due_at = None
                if content:
                    clip.cache_key = replace(clip.cache_key, content=content)
                self._mark(clip)
        if is_known:
            self._on_output(key, 0, Output(), True)

    def anticipate(self, key: Key) -> None:
        """A clip may be about to be closed: get its end ready if nothing else is to do."""
        with self._changed:
            clip = self._clips.get(key)
            is_calm = len(self._clips) <= MAX_CLIPS_TO_PREPARE
            if clip is not None and not clip.closing and is_calm:
                clip.pausing = True
                self._mark(clip)

    def drop(self, key: Key) -> None:
        """Forget a clip without an answer; ignored if it is gone."""
        with self._changed:
            self._known.discard(key)
            clip = self._clips.get(key)
            if clip is not None:
                self._forget(clip)

    def load(self) -> PoolLoad:
        """Return the load since the last call."""
        with self._changed:
            now = self._clock()
            due = (clip.due_at for clip in self._clips.values() if clip.live and clip.is_ready())
            oldest = min((due_at for due_at in due if due_at is not None), default=now)
            elapsed = (now - self._reported_at) * max(1, len(self._threads))
            busy = self._busy_s / elapsed if elapsed > 0 else 0.0
            self._busy_s, self._reported_at = 0.0, now
            return PoolLoad(lag_s=now - oldest, busy=min(1.0, busy))

    def run_once(self) -> bool:
        """Encode one batch; False if nothing was ready."""
        with self._changed:
            batch = self._take_batch()
        if batch is None:
            return False
        self._encode(batch)
        return True

    # --- which clips, when ----------------------------------------------------------------------

    def _run(self) -> None:
        use_one_core()
        self._prepared.wait()
        while True:
            with self._changed:
                while (batch := self._take_batch()) is None and not self._stopping:
                    self._changed.wait()
            if batch is None:
                return
            self._encode(batch)

    def _add(self, clip: Clip[Key], frame: MediaFrame) -> str | None:
        """Let a frame wait; returns the problem that ends its clip, if any. The lock is held."""
        if clip.closing or not len(frame.data):
            return None
        if not clip.is_ready():
            clip.due_at = None  # counted anew if this frame makes it ready
        problem = clip.add(frame, self._limits)
        if problem is None:
            self._mark(clip)
        else:
            self._forget(clip)
        return problem

    def _mark(self, clip: Clip[Key]) -> None:
        """Note that a clip has become ready and wake a thread. The lock is held."""
        if clip.running or clip.due_at is not None or not clip.is_due():
            return
        clip.due_at = self._clock()
        self._changed.notify()

    def _forget(self, clip: Clip[Key]) -> None:
        clip.gone = True
        del self._clips[clip.key]

    def _take_batch(self) -> Batch[Key] | None:
        """Take what is most urgent of what this thread may do. The lock is held."""
        num = len(self._threads)
        files_must_wait = self._num_file_batches >= max(1, num - 1)
        batch = next_batch(self._clips.values(), live_only=files_must_wait, num_threads=num)
        if batch is not None and not batch.live:
            self._num_file_batches += 1
        return batch

    # --- encoding -------------------------------------------------------------------------------

    def _encode(self, batch: Batch[Key]) -> None:
        """Push the batch's media and, if its clips are being closed, flush them."""
        started_at = self._clock()
        pushed = [(c, f) for c, f in zip(batch.clips, batch.frames, strict=True) if f]
        for (clip, frames), output in zip(pushed, push(pushed), strict=True):
            self._deliver(clip, sum(len(frame.data) for frame in frames), output, final=False)
        clips = [clip for clip in batch.clips if not clip.gone]
        if batch.final:
            for clip, output in zip(clips, flush(clips), strict=True):
                self._deliver(clip, 0, output, final=True)
        elif batch.pausing:
            anticipate(clips)
        with self._changed:
            self._busy_s += self._clock() - started_at
            if not batch.live:
                self._num_file_batches -= 1
            for clip in batch.clips:
                clip.running = False
                if not clip.gone:
                    self._mark(clip)

    def _deliver(
        self, clip: Clip[Key], num_ticks: int, output: Output | None, *, final: bool
    ) -> None:
        """Hand an output on, unless the clip is gone; without one the clip ends with a problem."""
        if output is None:
            output, final = Output(problem=FAILED, encoder=clip.encoder.name), True
        with self._changed:
            if clip.gone:
                return
            if final:
                self._forget(clip)
        self._record(clip, output, final=final)
        self._on_output(clip.key, num_ticks, output, final)

    def _record(self, clip: Clip[Key], output: Output, *, final: bool) -> None:
        """Note what was made of a clip; one that is complete and known by its content is kept."""
        if clip.recording is not None:
            clip.recording.add(output)
            if final and clip.cache_key.content:
                self._cache.keep(clip.cache_key, clip.recording)
