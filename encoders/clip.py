"""One clip of the encoder pool: what waits to be encoded, since when, and how urgent it is."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from sensorium.encoders.base import Encoder
from sensorium.encoders.media import AudioFrame, Pts

Key = TypeVar("Key", bound=Hashable)

FILE_SLACK_S = 5.0
"""How much longer than a talker a clip that isn't live may wait before it goes first."""

FILE_HOP_S = 1.0
"""Sound of a clip that isn't live is handed on in runs of at least this length."""

MAX_PASS_S = 30.0
"""Most sound of a clip in one batch: an hour that comes at once mustn't keep talkers waiting."""


@dataclass(slots=True, eq=False)
class Clip(Generic[Key]):
    """One stream's clip. `due_at` is when it became ready, None while it isn't."""

    key: Key
    encoder: Encoder[Any]
    state: Any
    live: bool
    frames: list[AudioFrame] = field(default_factory=list)
    num_pending: int = 0
    due_at: float | None = None
    closing: bool = False
    pausing: bool = False
    running: bool = False
    gone: bool = False

    def is_due(self) -> bool:
        """Tell whether there is something to do now."""
        return self.pausing or self.is_ready()

    def is_ready(self) -> bool:
        """Tell whether there is something to encode now."""
        if self.closing:
            return True
        if not self.live:
            return self.num_pending >= FILE_HOP_S * self.encoder.rate_hz
        return self.num_pending > 0 and self.encoder.ready(self.state, self.num_pending)

    def is_ending(self) -> bool:
        """Tell whether the next batch is the clip's last."""
        return self.closing and self.num_pending <= MAX_PASS_S * self.encoder.rate_hz

    def take_frame(self) -> AudioFrame | None:
        """Join the pending sound, up to MAX_PASS_S, into one frame."""
        if not self.frames:
            return None
        first = self.frames[0]
        limit = round(MAX_PASS_S * first.rate_hz)
        samples = np.concatenate([frame.samples for frame in self.frames])
        self.frames, self.num_pending = [], len(samples[limit:])
        if self.num_pending:
            rest = replace(first, pts=Pts(first.pts + limit), samples=samples[limit:])
            self.frames.append(rest)
        return replace(first, samples=samples[:limit])

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
    """Clips of one kind and the sound taken from each, None where none was pending.

    `final`: they end with it. `pausing`: they may be about to.
    """

    clips: list[Clip[Key]]
    frames: list[AudioFrame | None]
    final: bool
    pausing: bool
