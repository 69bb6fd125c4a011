"""Encoder threads beside the engine: ready media of many streams becomes one batch.

The pool owns which clips are encoded together and when. Whenever a thread is free it takes every
clip that has reached its encoder's next grid point, so under load clips gather more media between
passes and partial words come less often, by themselves. It doesn't know sequences or tokens.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sensorium.encoders.base import ClipHints, Encoder, Output
from sensorium.encoders.clip import Batch, Clip
from sensorium.encoders.isolation import isolate
from sensorium.encoders.media import MediaError, MediaFrame

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
    pool thread without a lock held, or inside `open` or `push` where a clip can't be taken; one
    call may still be under way when `drop` returns. All methods may be called by any thread.

    Clips being closed go first, because someone waits for the answer; then the clip that has been
    ready longest, together with all others that can share its batch. Without `start` nothing runs
    but what the caller does through `run_once`.
    """

    def __init__(
        self,
        encoders: Mapping[str, Encoder[Any]],
        *,
        on_output: OnOutput[Key],
        num_threads: int = 1,
        max_pending_s: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._encoders = encoders
        self._on_output = on_output
        self._max_pending_s = max_pending_s
        self._clock = clock
        self._clips: dict[Key, Clip[Key]] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._busy_s = 0.0
        self._reported_at = clock()
        self._threads = [
            threading.Thread(target=self._run, name=f"encoder-{i}", daemon=True)
            for i in range(num_threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let running batches end, drop everything else and join the threads."""
        with self._changed:
            self._stopping = True
            for clip in list(self._clips.values()):
                self._forget(clip)
            self._changed.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def open(self, key: Key, modality: str, hints: ClipHints) -> None:
        """Begin a clip; its key must be new.

        One that can't be taken (no encoder for its modality, hints that the encoder can't follow)
        ends at once with a `problem`.
        """
        encoder = self._encoders.get(modality)
        if encoder is None:
            known = ", ".join(sorted(self._encoders)) or "none"
            problem = f"This server has no encoder for {modality!r} (it has: {known})."
            self._on_output(key, 0, Output(problem=problem), True)
            return
        try:
            clip = Clip(key, encoder, encoder.open(hints), hints.live)
        except Exception:  # an encoder's fault ends this clip alone
            logger.exception("a clip can't be opened")
            self._on_output(key, 0, Output(problem=FAILED, encoder=encoder.name), True)
            return
        with self._changed:
            assert key not in self._clips, f"clip {key} is open already"
            self._clips[key] = clip

    def push(self, key: Key, frame: MediaFrame) -> None:
        """Add media to a clip; ignored once the clip is closing or gone.

        A clip that gets what its encoder doesn't take, or whose waiting media exceeds the bound,
        ends with a `problem`.
        """
        with self._changed:
            clip = self._clips.get(key)
            if clip is None or clip.closing or not len(frame.data):
                return
            if not clip.is_ready():
                clip.due_at = None  # counted anew if this frame makes it ready
            clip.frames.append(frame)
            clip.num_pending += len(frame.data)
            problem = self._problem_with(clip, frame)
            if problem is None:
                self._mark(clip)
            else:
                self._forget(clip)
        if problem is not None:
            output = Output(problem=problem, encoder=clip.encoder.name)
            self._on_output(key, clip.num_pending, output, True)

    def close(self, key: Key) -> None:
        """No more media comes: encode what is left and end the clip; ignored if it is gone."""
        with self._changed:
            clip = self._clips.get(key)
            if clip is not None and not clip.closing:
                clip.closing, clip.pausing = True, False
                clip.due_at = None
                self._mark(clip)

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

    def _problem_with(self, clip: Clip[Key], frame: MediaFrame) -> str | None:
        """Say why a clip can't go on with its newest frame, None if it can. The lock is held."""
        try:
            clip.encoder.intake.check(frame)
        except MediaError as error:
            return str(error)
        if clip.pending_s > self._max_pending_s:
            limit = f"more than {self._max_pending_s:.0f} seconds were waiting"
            return f"The encoder couldn't keep up: {limit}."
        return None

    # --- which clips, when ----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while (batch := self._take_batch()) is None and not self._stopping:
                    self._changed.wait()
            if batch is None:
                return
            self._encode(batch)

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
        """Choose the most urgent clip and all that can share its batch. The lock is held."""
        due = sorted(
            (clip for clip in self._clips.values() if clip.due_at is not None), key=Clip.urgency
        )
        if not due:
            return None
        clips = [clip for clip in due if clip.kind() == due[0].kind()][: due[0].encoder.max_batch]
        final, pausing = clips[0].is_ending(), not clips[0].is_ready()
        for clip in clips:
            clip.due_at = None
            clip.running = True
            clip.pausing = clip.pausing and not pausing
        frames = [clip.take_frames() for clip in clips]
        return Batch(clips=clips, frames=frames, final=final, pausing=pausing)

    # --- encoding -------------------------------------------------------------------------------

    def _encode(self, batch: Batch[Key]) -> None:
        """Push the batch's media and, if its clips are being closed, flush them."""
        started_at = self._clock()
        self._push([(c, f) for c, f in zip(batch.clips, batch.frames, strict=True) if f])
        clips = [clip for clip in batch.clips if not clip.gone]
        if batch.final:
            self._flush(clips)
        elif batch.pausing and clips:
            self._anticipate(clips)
        with self._changed:
            self._busy_s += self._clock() - started_at
            for clip in batch.clips:
                clip.running = False
                if not clip.gone:
                    self._mark(clip)

    def _push(self, pushed: list[tuple[Clip[Key], tuple[MediaFrame, ...]]]) -> None:
        def encode(part: list[tuple[Clip[Key], tuple[MediaFrame, ...]]]) -> list[Output]:
            encoder = part[0][0].encoder
            return encoder.push([frames for _, frames in part], [clip.state for clip, _ in part])

        for (clip, frames), output in zip(pushed, isolate(pushed, encode), strict=True):
            num_ticks = sum(len(frame.data) for frame in frames)
            self._deliver(clip, num_ticks, output, final=False)

    def _anticipate(self, clips: list[Clip[Key]]) -> None:
        """Let the encoder prepare; what goes wrong goes wrong again in the flush, and is told."""
        try:
            clips[0].encoder.anticipate([clip.state for clip in clips])
        except Exception:  # nobody waits for this; the flush will tell
            logger.exception("the encoder can't prepare the end of %d clips", len(clips))

    def _flush(self, clips: list[Clip[Key]]) -> None:
        def encode(part: list[Clip[Key]]) -> list[Output]:
            return part[0].encoder.flush([clip.state for clip in part])

        for clip, output in zip(clips, isolate(clips, encode), strict=True):
            self._deliver(clip, 0, output, final=True)

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
        self._on_output(clip.key, num_ticks, output, final)
