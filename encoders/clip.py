"""One clip of the encoder pool: what waits to be encoded, since when, and how urgent it is."""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sensorium.encoders.base import Encoder
from sensorium.encoders.cache import CacheKey, Recording
from sensorium.encoders.media import MediaError, MediaFrame, joined

Key = TypeVar("Key", bound=Hashable)

FILE_SLACK_S = 5.0
"""How much longer than a talker a clip that isn't live may wait before it goes first."""

FILE_HOP_S = 1.0
"""Media of a clip that isn't live is handed on in runs of at least this length."""

MAX_PASS_S = 30.0
"""Most media of a clip in one batch: an hour that comes at once mustn't keep talkers waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLimits:
    """How much media of one clip may wait. Sound is many seconds, pictures are many bytes."""

    max_s: float = 900.0
    max_bytes: int = 256 * 2**20


@dataclass(slots=True, eq=False)
class Clip(Generic[Key]):
    """One stream's clip. `due_at` is when it became ready, None while it isn't.

    `cache_key` names it if it is complete, as far as its `content` is known; `recording` is what
    has been made of it, None if nothing is kept.
    """

    key: Key
    encoder: Encoder[Any]
    state: Any
    live: bool
    cache_key: CacheKey
    recording: Recording | None = None
    frames: list[MediaFrame] = field(default_factory=list)
    num_pending: int = 0
    pending_bytes: int = 0
    due_at: float | None = None
    closing: bool = False
    pausing: bool = False
    running: bool = False
    gone: bool = False

    @property
    def pending_s(self) -> float:
        """Seconds of media that wait to be encoded."""
        return self.frames[-1].end_s - self.frames[0].start_s if self.frames else 0.0

    def add(self, frame: MediaFrame, limits: PendingLimits) -> str | None:
        """Let a frame wait; returns why the clip can't go on with it, None if it can."""
        self.frames.append(frame)
        self.num_pending += len(frame.data)
        self.pending_bytes += frame.data.nbytes
        try:
            self.encoder.intake.check(frame)
        except MediaError as error:
            return str(error)
        # Of a long video few frames come, far apart: not the time between them waits.
        if self.num_pending > limits.max_s * frame.rate_hz:
            return _overflow(f"{limits.max_s:.0f} seconds")
        if self.pending_bytes > limits.max_bytes:
            return _overflow(f"{limits.max_bytes / 2**20:.0f} MiB")
        return None

    def is_due(self) -> bool:
        """Tell whether there is something to do now."""
        return self.pausing or self.is_ready()

    def is_ready(self) -> bool:
        """Tell whether there is something to encode now."""
        if self.closing:
            return True
        if not self.live:
            return self.pending_s >= FILE_HOP_S
        return self.num_pending > 0 and self.encoder.ready(self.state, self.num_pending)

    def is_ending(self) -> bool:
        """Tell whether the next batch is the clip's last."""
        return self.closing and self.pending_s <= MAX_PASS_S

    def take_frames(self) -> tuple[MediaFrame, ...]:
        """Take the pending media, up to MAX_PASS_S; what follows without a gap is joined."""
        taken: list[MediaFrame] = []
        rest = list(joined(self.frames))
        while rest:
            frame = rest.pop(0)
            room = round((MAX_PASS_S + (taken or [frame])[0].start_s) * frame.rate_hz) - frame.pts
            head, tail = frame.split(max(0, room))
            if len(head.data):
                taken.append(head)
            if len(tail.data):
                rest.insert(0, tail)
                break
        self.frames, self.num_pending = rest, sum(len(frame.data) for frame in rest)
        self.pending_bytes = sum(frame.data.nbytes for frame in rest)
        return tuple(taken)

    def kind(self) -> tuple[int, bool, bool, bool]:
        """Clips of one kind may share a batch."""
        return id(self.encoder), self.is_ending(), self.live, self.is_ready()

    def urgency(self) -> tuple[int, float]:
        """Sort key: talkers who have finished, who has been ready longest, talkers who pause."""
        since = self.due_at or 0.0
        rank = 0 if self.closing and self.live else 1 if self.is_ready() else 2
        return rank, since if self.live else since + FILE_SLACK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Generic[Key]):
    """Clips of one kind and the media taken from each, nothing where none was pending.

    `live`: somebody is talking. `final`: they end with it. `pausing`: they may be about to.
    """

    clips: list[Clip[Key]]
    frames: list[tuple[MediaFrame, ...]]
    live: bool
    final: bool
    pausing: bool


def next_batch(
    clips: Iterable[Clip[Key]], *, live_only: bool, num_threads: int
) -> Batch[Key] | None:
    """Take the media of the most urgent clip and of all that can share its batch, None if none is
    due. With `live_only` the others wait.

    Of an encoder's talkers a batch takes one thread's share. A clip is in one batch at a time: were
    all in one that takes longer than their media comes in, the other threads would never have any.
    """
    clips = list(clips)
    due = sorted(
        (clip for clip in clips if clip.due_at is not None and (clip.live or not live_only)),
        key=Clip.urgency,
    )
    if not due:
        return None
    first = due[0]
    most = first.encoder.max_batch
    if first.live:
        num_talkers = sum(clip.live and clip.encoder is first.encoder for clip in clips)
        most = min(most, math.ceil(num_talkers / num_threads))
    chosen = [clip for clip in due if clip.kind() == first.kind()][:most]
    final, pausing = chosen[0].is_ending(), not chosen[0].is_ready()
    for clip in chosen:
        clip.due_at = None
        clip.running = True
        clip.pausing = clip.pausing and not pausing
    frames = [clip.take_frames() for clip in chosen]
    return Batch(clips=chosen, frames=frames, live=chosen[0].live, final=final, pausing=pausing)


def _overflow(limit: str) -> str:
    return f"The encoder couldn't keep up: more than {limit} were waiting."
