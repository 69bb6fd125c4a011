"""An encoder that hears words on a fixed beat and keeps a log of its batches."""

import threading
from dataclasses import dataclass, field

from sensorium.encoders.base import ClipHints, Output, Word
from sensorium.encoders.media import Intake, MediaFrame

RATE_HZ = 16_000


@dataclass
class ScriptedState:
    """Samples taken and words settled so far; `poisoned` makes every call with it fail."""

    poisoned: bool
    num_samples: int = 0
    num_words: int = 0


@dataclass
class ScriptedEncoder:
    """Hears `words_per_s` words a second, " word0", " word1", …, once every whole second of sound.

    The words of the last `unsettled_s` stay pending until the flush. `batches` lists ("push" |
    "flush", batch size). A clip with the prompt "poison" fails. While `gate` is cleared a call
    waits, which holds the pool's thread busy.
    """

    words_per_s: int = 1
    unsettled_s: int = 1
    name: str = "scripted"
    revision: str = "1"
    max_batch: int = 4
    intake: Intake = field(default_factory=lambda: Intake(encoder="scripted", rate_hz=RATE_HZ))
    batches: list[tuple[str, int]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        """Open the gate."""
        self.gate.set()

    def open(self, hints: ClipHints) -> ScriptedState:
        """Return a new clip's state."""
        return ScriptedState(poisoned=hints.prompt == "poison")

    def ready(self, state: ScriptedState, num_ticks: int) -> bool:
        """Tell whether another whole second has come together."""
        return state.num_samples % RATE_HZ + num_ticks >= RATE_HZ

    def push(
        self, frames: list[tuple[MediaFrame, ...]], states: list[ScriptedState]
    ) -> list[Output]:
        """Settle all whole seconds but the last `unsettled_s`."""
        self._enter("push", states)
        for run, state in zip(frames, states, strict=True):
            for frame in run:
                assert frame.pts == state.num_samples
                state.num_samples += len(frame.data)
        return [
            self._settle(state, state.num_samples // RATE_HZ - self.unsettled_s) for state in states
        ]

    def anticipate(self, states: list[ScriptedState]) -> None:
        """Only note the call."""
        self._enter("anticipate", states)

    def flush(self, states: list[ScriptedState]) -> list[Output]:
        """Settle everything."""
        self._enter("flush", states)
        return [self._settle(state, state.num_samples // RATE_HZ) for state in states]

    def _enter(self, call: str, states: list[ScriptedState]) -> None:
        self.batches.append((call, len(states)))
        self.entered.set()
        self.gate.wait()
        if any(state.poisoned for state in states):
            raise RuntimeError("poisoned clip")

    def _settle(self, state: ScriptedState, through_s: int) -> Output:
        beat_s = 1 / self.words_per_s
        words = tuple(
            Word(text=f"word{n}", start_s=n * beat_s, end_s=(n + 1) * beat_s, probability=1.0)
            for n in range(state.num_words, max(state.num_words, through_s * self.words_per_s))
        )
        state.num_words += len(words)
        return Output(
            text="".join(f" {word.text}" for word in words),
            words=words,
            pending=" …" if state.num_samples else "",
            language="en",
            encoder=self.name,
        )
