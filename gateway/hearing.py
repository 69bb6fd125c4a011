"""Spoken turns on their way through the engine: one after the other, each kept until it was heard.

The first turn of the queue may be *live*: its span is open at the tail of the main sequence and
its sound is encoded as it comes. The others wait. Sound is kept until it was heard to its end, so
that a turn survives the loss of the engine; sound that becomes embeddings, not words, is handed on
as a `Recording` then, for it is all that can make them again.
"""

import hashlib
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from sensorium.core.api import AppendMedia, Heard, ModelInfo, Progress, SpanClosed, SpanId
from sensorium.core.text.prompt import Prompt
from sensorium.encoders.base import ClipHints
from sensorium.encoders.media import Samples
from sensorium.gateway.configuration import Transcription
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.placement import Placement

_HOP_MS = 128
"""While a turn is open, sound is handed to an encoder that makes words this often. One that makes
rows gets it as each row is complete, so that nothing but a begun row is left for the commit."""
_MAX_IN_FLIGHT_S = 30
"""Sound that may wait in the encoder's queue."""

MAX_PROMPT_CHARACTERS = 1000
"""The end of a transcription prompt that is used: Whisper reads 224 tokens of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recording:
    """The sound of a whole turn: mono at the model's rate, and the SHA-256 of its bytes in hex."""

    samples: Samples
    sha256: str


@dataclass(slots=True)
class SpokenTurn:
    """One turn of the user's speech.

    `settled` is the text heard in this attempt, `told` what the peer has seen of it as deltas.
    With `keeps_sound` its bytes are hashed as they come, for a `recording` of it.
    """

    item_id: str
    start_ms: int = 0
    hints: ClipHints = field(default_factory=ClipHints)
    keeps_sound: bool = False
    committed: bool = False
    respond: bool = False
    settled: str = ""
    told: str = ""
    num_attempts: int = 0
    refused_since: float | None = None
    span: SpanId | None = None
    closing: bool = False
    chunks: list[Samples] = field(default_factory=list)
    num_chunks_sent: int = 0
    num_samples: int = 0
    num_sent: int = 0
    num_taken: int = 0
    _hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    @property
    def content(self) -> str:
        """The name of all its sound for `CloseSpan`: its SHA-256, "" if it isn't kept."""
        return self._hash.hexdigest() if self.keeps_sound else ""

    def append(self, samples: Samples) -> None:
        """Add sound at the end."""
        if len(samples):
            self.chunks.append(samples)
            self.num_samples += len(samples)
            if self.keeps_sound:
                self._hash.update(samples.data)

    def recording(self) -> Recording:
        """Return its sound as one piece; the turn must be one that keeps it."""
        assert self.keeps_sound
        samples = np.concatenate([np.zeros(0, np.float32), *self.chunks])
        return Recording(samples=samples, sha256=self.content)

    def start_over(self) -> None:
        """Nothing of it stands in the engine (any more)."""
        self.span = None
        self.closing = False
        self.settled = ""
        self.num_chunks_sent = self.num_sent = self.num_taken = 0


class Hearing:
    """The queue of spoken turns of one session."""

    def __init__(
        self, outbox: Outbox, main: Placement, prompt: Prompt, *, model: ModelInfo
    ) -> None:
        intake = model.intakes.get("audio")
        self.gives_rows = intake is not None and intake.gives_rows
        self._hop = (intake and intake.ticks_per_row) or model.audio_rate_hz * _HOP_MS // 1000
        self._max_in_flight = _MAX_IN_FLIGHT_S * model.audio_rate_hz
        self._outbox = outbox
        self._main = main
        self._head = prompt.open_message("user")
        self._tail = prompt.close_message()
        self._turns: deque[SpokenTurn] = deque()

    @property
    def current(self) -> SpokenTurn | None:
        """The turn that still takes sound."""
        return self._turns[-1] if self._turns and not self._turns[-1].committed else None

    @property
    def turns(self) -> list[SpokenTurn]:
        """All turns that aren't heard to their end, oldest first."""
        return list(self._turns)

    @property
    def first(self) -> SpokenTurn | None:
        """The turn whose turn it is to be heard."""
        return self._turns[0] if self._turns else None

    @property
    def has_committed(self) -> bool:
        """Whether a committed turn isn't heard to its end yet."""
        return bool(self._turns) and self._turns[0].committed

    @property
    def is_live(self) -> bool:
        """Whether the first turn's span is open in the engine."""
        return bool(self._turns) and self._turns[0].span is not None

    @property
    def backlog_samples(self) -> int:
        """Sound accepted and not yet taken by an encoder."""
        return sum(turn.num_samples - turn.num_taken for turn in self._turns)

    def begin(self, turn: SpokenTurn) -> None:
        """Queue a turn; one that is complete already goes before the one still being spoken."""
        if turn.committed and self.current is not None:
            if len(self._turns) == 1 and self.is_live:
                self.step_aside()
            self._turns.insert(len(self._turns) - 1, turn)
        else:
            self._turns.append(turn)

    def drop_current(self) -> None:
        """Forget the turn that still takes sound; its span, if live, is rolled back."""
        turn = self._turns.pop()
        if turn.span is not None:
            self._main.discard_tail()

    def drop_first(self) -> SpokenTurn:
        """Forget the first turn (it can't be heard)."""
        turn = self._turns.popleft()
        if turn.span is not None and self._main.sequence_id is not None:
            self._main.discard_tail()
        return turn

    def go_live(self, transcription: Transcription | None) -> None:
        """Open the first turn's span at the tail of the main sequence, which must be in sync."""
        turn = self._turns[0]
        wanted = transcription or Transcription()
        prompt = (wanted.prompt or "")[-MAX_PROMPT_CHARACTERS:]
        hints = ClipHints(live=turn.hints.live, language=wanted.language, prompt=prompt)
        turn.span = self._main.open_media(self._head, hints)

    def step_aside(self) -> None:
        """Take the live turn off the tail; it will be heard again from its beginning."""
        self._main.discard_tail()
        self.lost()

    def lost(self) -> None:
        """The engine forgot the live turn."""
        if self._turns:
            self._turns[0].start_over()

    def anticipate(self) -> None:
        """The speaker has paused: let the encoder get ready for the end of the turn."""
        turn = self.first
        if turn is not None and turn.span is not None and not turn.committed:
            self._send(turn)
            self._main.anticipate_end(turn.span)

    def feed(self) -> None:
        """Hand over as much of the live turn's sound as the encoder's queue may hold."""
        turn = self.first
        if turn is None or turn.span is None:
            return
        if turn.num_samples // self._hop > turn.num_sent // self._hop or turn.committed:
            self._send(turn)
        if turn.committed and turn.num_sent == turn.num_samples and not turn.closing:
            turn.closing = True
            self._main.close_media(turn.span, content=turn.content)

    def advance(self, event: Progress | Heard | SpanClosed) -> SpokenTurn | None:
        """Take the engine's word on the live turn; returns it, or None if the event is stale."""
        turn = self.first
        if turn is None or turn.span != event.span_id:
            return None
        if isinstance(event, Progress):
            turn.num_taken += event.num_ticks
            self.feed()
        elif isinstance(event, SpanClosed):
            self._turns.popleft()
            self._main.complete(("item", turn.item_id), self._tail)
        return turn

    def _send(self, turn: SpokenTurn) -> None:
        assert turn.span is not None
        assert self._main.sequence_id is not None
        pieces: list[Samples] = []
        room = self._max_in_flight - (turn.num_sent - turn.num_taken)
        for chunk in turn.chunks[turn.num_chunks_sent :]:
            if room <= 0:
                break
            room -= len(chunk)
            pieces.append(chunk)
        if pieces:
            sound = np.concatenate(pieces)
            self._outbox.ask(
                AppendMedia(
                    sequence_id=self._main.sequence_id,
                    span_id=turn.span,
                    pts=turn.num_sent,
                    shape=sound.shape,
                    data=sound.tobytes(),
                )
            )
            turn.num_chunks_sent += len(pieces)
            turn.num_sent += len(sound)
