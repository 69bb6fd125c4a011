"""Spoken turns on their way through the engine: one after the other, each kept until it was heard.

The first turn of the queue may be *live*: it stands at the tail of the main sequence, a span for
each of its pieces, and its sound is encoded as it comes. The others wait. Sound and frames are kept
until they were encoded, so that a turn survives the loss of the engine.
"""

from collections import deque

import numpy as np

from sensorium.core.api import AppendMedia, Heard, ModelInfo, Progress, SpanClosed
from sensorium.core.text.prompt import Prompt
from sensorium.encoders.base import ClipHints
from sensorium.encoders.media import Samples
from sensorium.gateway.configuration import Transcription
from sensorium.gateway.media import Medium
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.placement import Placement
from sensorium.gateway.spoken_turn import SpokenTurn, Stretch, View

_HOP_MS = 128
"""While a turn is open, sound is handed to an encoder that makes words this often. One that makes
rows gets it as each row is complete, so that nothing but a begun row is left for the commit."""
_MAX_IN_FLIGHT_S = 30
"""Sound that may wait in the encoder's queue."""
_SPOKEN_POSITIONS = 512
"""About two minutes of speech."""

MAX_PROMPT_CHARACTERS = 1000
"""The end of a transcription prompt that is used: Whisper reads 224 tokens of it."""


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
        self._between_words = prompt.text("\n")
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
        """Whether the first turn stands in the engine, as far as it goes."""
        return bool(self._turns) and self._turns[0].is_live

    @property
    def backlog_samples(self) -> int:
        """Sound accepted and not yet taken by an encoder."""
        return sum(turn.num_samples - turn.num_taken for turn in self._turns)

    @property
    def reserve(self) -> int:
        """Positions to keep free for the first turn when it begins, 0 if there is none."""
        if not self._turns:
            return 0
        return _SPOKEN_POSITIONS + sum(medium.num_positions for medium in self._turns[0].seen())

    def begin(self, turn: SpokenTurn) -> None:
        """Queue a turn; one that is complete already goes before the one still being spoken."""
        if turn.committed and self.current is not None:
            if len(self._turns) == 1 and self.is_live:
                self.step_aside()
            self._turns.insert(len(self._turns) - 1, turn)
        else:
            self._turns.append(turn)

    def drop(self, turn: SpokenTurn) -> None:
        """Forget a turn; if it is live, it is rolled back."""
        self._turns.remove(turn)
        if turn.is_live and self._main.sequence_id is not None:
            self._main.discard_tail()

    def go_live(self, transcription: Transcription | None) -> None:
        """Begin the first turn at the tail of the main sequence, which must be in sync."""
        turn = self._turns[0]
        wanted = transcription or Transcription()
        prompt = (wanted.prompt or "")[-MAX_PROMPT_CHARACTERS:]
        turn.hints = ClipHints(live=not turn.is_inline, language=wanted.language, prompt=prompt)
        turn.is_live = True
        self._main.append(self._head)

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
        last = turn.pieces[-1] if turn is not None and turn.pieces else None
        if turn is None or turn.committed or not isinstance(last, Stretch) or last.span is None:
            return
        self._send(turn, last)
        self._main.anticipate_end(last.span)

    def feed(self) -> None:
        """Hand over what the encoders may have of the live turn, piece by piece."""
        turn = self.first
        if turn is None or not turn.is_live:
            return
        while turn.num_placed < len(turn.pieces):
            piece = turn.pieces[turn.num_placed]
            if isinstance(piece, Stretch):
                if not self._speak(turn, piece):
                    return
            elif piece.media is None:
                return
            else:
                self._show(turn, piece.media)
            turn.num_placed += 1

    def advance(self, event: Progress | Heard | SpanClosed) -> SpokenTurn | None:
        """Take the engine's word on the live turn; returns it, or None if the event is stale."""
        turn = self.first
        if turn is None or event.span_id not in turn.open_spans:
            return None
        if not isinstance(event, Progress):
            turn.hear(event)
        elif turn.open_spans[event.span_id] is not None:
            turn.num_taken += event.num_ticks
            self.feed()
        return turn

    def complete(self, key: tuple[str, str]) -> None:
        """End the first turn, which must be complete, and keep it as the unit `key`."""
        self._turns.popleft()
        self._main.complete(key, self._tail)

    def _speak(self, turn: SpokenTurn, stretch: Stretch) -> bool:
        """Send sound that is due; returns whether all of the stretch is with its encoder.

        A stretch before frames that aren't decoded is kept open: perhaps there is nothing to see.
        """
        if stretch.span is None:
            self._divide(turn, are_words=not self.gives_rows)
            stretch.span = self._main.open_media(turn.hints)
            turn.open_spans[stretch.span] = stretch
        after = turn.pieces[turn.num_placed + 1 :]
        is_over = turn.committed or bool(after)
        is_whole_hop = stretch.num_samples // self._hop > stretch.num_sent // self._hop
        if is_whole_hop or is_over:
            self._send(turn, stretch)
        is_settled = not after or not isinstance(after[0], View) or after[0].media is not None
        if not (is_over and is_settled and stretch.num_sent == stretch.num_samples):
            return False
        self._main.close_media(stretch.span, content=stretch.content)
        return True

    def _show(self, turn: SpokenTurn, media: tuple[Medium, ...]) -> None:
        for medium in media:
            self._divide(turn, are_words=not medium.gives_rows)
            turn.open_spans[self._main.place(medium, live=True)] = None

    def _divide(self, turn: SpokenTurn, *, are_words: bool) -> None:
        """Divide words from the words of the piece before, as `Conversation` does."""
        if are_words and turn.ends_in_words:
            self._main.append(self._between_words)
        turn.ends_in_words = are_words

    def _send(self, turn: SpokenTurn, stretch: Stretch) -> None:
        assert stretch.span is not None
        assert self._main.sequence_id is not None
        pieces: list[Samples] = []
        num_sent = sum(each.num_sent for each in turn.stretches)
        room = self._max_in_flight - (num_sent - turn.num_taken)
        for chunk in stretch.chunks[stretch.num_chunks_sent :]:
            if room <= 0:
                break
            room -= len(chunk)
            pieces.append(chunk)
        if pieces:
            sound = np.concatenate(pieces)
            self._outbox.ask(
                AppendMedia(
                    sequence_id=self._main.sequence_id,
                    span_id=stretch.span,
                    pts=stretch.num_sent,
                    shape=sound.shape,
                    data=sound.tobytes(),
                )
            )
            stretch.num_chunks_sent += len(pieces)
            stretch.num_sent += len(sound)
