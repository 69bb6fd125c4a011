"""A modality that the product doesn't know: an inertial sensor, complete in one file.

Readings of three accelerations and three rates of turning, 100 a second, become one row per tenth
of a second: the ten readings times a fixed random matrix, which stands in for a learned tower.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from sensorium.encoders.base import ClipHints, EncoderSources, Output, Rows
from sensorium.encoders.media import Intake, MediaFrame

RATE_HZ, HOP, CHANNELS = 100, 10, 6
Readings = NDArray[np.float32]


@dataclass
class InertialState:
    """Readings that make no whole row yet, [< HOP, CHANNELS], and how many rows were made."""

    rest: Readings = field(default_factory=lambda: np.zeros((0, CHANNELS), np.float32))
    num_rows: int = 0


class InertialEncoder:
    """Rows of `width` numbers; a last incomplete one is filled up with zeros."""

    name = "inertial"
    revision = "1"
    max_batch = 8
    intake = Intake(
        encoder="inertial",
        rate_hz=RATE_HZ,
        shape=(CHANNELS,),
        gives_rows=True,
        ticks_per_row=HOP,
    )

    def __init__(self, width: int) -> None:
        generator = torch.Generator().manual_seed(6)
        self.weight = torch.randn(HOP * CHANNELS, width, generator=generator) / 8

    @classmethod
    def load(cls, sources: EncoderSources) -> "InertialEncoder | None":
        """Return it for any decoder, as wide as that is."""
        config = sources.config.get("text_config", sources.config)
        return cls(config["hidden_size"])

    def open(self, hints: ClipHints) -> InertialState:
        """Return a new clip's state."""
        return InertialState()

    def ready(self, state: InertialState, num_ticks: int) -> bool:
        """Tell whether a row has come together."""
        return len(state.rest) + num_ticks >= HOP

    def push(
        self, frames: list[tuple[MediaFrame, ...]], states: list[InertialState]
    ) -> list[Output]:
        """Make a row of every HOP readings."""
        for run, state in zip(frames, states, strict=True):
            state.rest = np.concatenate([state.rest, *(frame.data for frame in run)])
        return [self._take(state, len(state.rest) // HOP) for state in states]

    def anticipate(self, states: list[InertialState]) -> None:
        """Nothing can be prepared."""

    def flush(self, states: list[InertialState]) -> list[Output]:
        """Make a row of what is left, if anything is."""
        for state in states:
            missing = -len(state.rest) % HOP
            state.rest = np.pad(state.rest, ((0, missing), (0, 0)))
        return [self._take(state, len(state.rest) // HOP) for state in states]

    def _take(self, state: InertialState, count: int) -> Output:
        taken, state.rest = np.split(state.rest, [count * HOP])
        hops = torch.from_numpy(taken.reshape(count, HOP * CHANNELS))
        rows = Rows(
            values=hops @ self.weight,
            start_s=state.num_rows * HOP / RATE_HZ,
            step_s=HOP / RATE_HZ,
        )
        state.num_rows += count
        return Output(rows=(rows,) if count else (), encoder=self.name)
