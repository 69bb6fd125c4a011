"""One clip of the encoder pool: what waits to be encoded, since when, and how urgent it is."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sensorium.encoders.base import Encoder
from sensorium.encoders.media import MediaFrame, joined

Key = TypeVar("Key", bound=Hashable)

FILE_SLACK_S = 5.0
"""How much longer than a talker a clip that isn't live may wait before it goes first."""

FILE_HOP_S = 1.0
"""Media of a clip that isn't live is handed on in runs of at least this length."""

MAX_PASS_S = 30.0
"""Most media of a clip in one batch: an hour that comes at once mustn't keep talkers waiting."""


@dataclass(slots=True, eq=False)
class Clip(Generic[Key]):
    """One stream's clip. `due_at` is when it became ready, None while it isn't."""

    key: Key
    encoder: Encoder[Any]
    state: Any
    live: bool
    frames: list[MediaFrame] = field(default_factory=list)
    num_pending: int = 0
    due_at: float | None = None
    closing: bool = False
    pausing: bool = False
    running: bool = False
    gone: bool = False

    @property
    def pending_s(self) -> float:
        """Seconds of media that wait to be encoded."""
        return self.frames[-1].end_s - self.frames[0].start_s if self.frames else 0.0

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

    `final`: they end with it. `pausing`: they may be about to.
    """

    clips: list[Clip[Key]]
    frames: list[tuple[MediaFrame, ...]]
    final: bool
    pausing: bool
