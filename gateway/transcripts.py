"""What the peer is told of a spoken turn's words, settled and unsettled."""

from sensorium.encoders.media import Intake
from sensorium.gateway.configuration import Transcription
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.server_events import (
    TranscriptCompleted,
    TranscriptDelta,
    TranscriptFailed,
    TranscriptPartial,
)
from sensorium.gateway.spoken_turn import SpokenTurn


class Transcripts:
    """Tells the words of spoken turns to a peer that asked for transcription.

    Without `live`, words are told only after the turn's item: one delta, then the whole (REALTIME
    7.3). With it, deltas come while the user speaks, under the item id that the turn will have.
    `intake` is that of the encoder which hears the turns: of one that makes no words the peer is
    told so, once a turn.
    """

    def __init__(
        self,
        outbox: Outbox,
        transcription: Transcription | None,
        *,
        live: bool,
        intake: Intake | None = None,
    ) -> None:
        self._outbox = outbox
        self._live = live
        self._wordless = intake.encoder if intake is not None and intake.gives_rows else None
        self.transcription = transcription

    def heard(self, turn: SpokenTurn) -> None:
        """Tell the words of an open turn, if the peer wants them live."""
        if self._live and self.transcription is not None:
            self._tell(turn)
            self._outbox.say(TranscriptPartial(item_id=turn.item_id, text=turn.pending))

    def complete(self, turn: SpokenTurn, seconds: float) -> None:
        """Tell the end of a turn: its transcript, or why there is none. Pictures have none."""
        if self.transcription is None or not turn.stretches:
            return
        transcript = turn.settled.strip()
        if turn.problem is not None and not transcript:
            self.failed(turn, "unsupported_speech", turn.problem)
            return
        if self._wordless is not None:
            self.failed(
                turn,
                "transcription_unavailable",
                f"The model hears this turn as embeddings, not as words: {self._wordless} makes no "
                "transcript.",
            )
            return
        self._tell(turn)
        self._outbox.say(
            TranscriptCompleted(item_id=turn.item_id, text=transcript, seconds=seconds)
        )

    def failed(self, turn: SpokenTurn, code: str, message: str) -> None:
        """Tell that a turn can't be transcribed."""
        if self.transcription is not None:
            self._outbox.say(TranscriptFailed(item_id=turn.item_id, code=code, message=message))

    def _tell(self, turn: SpokenTurn) -> None:
        text = turn.settled
        if len(text) > len(turn.told) and text.startswith(turn.told):
            self._outbox.say(TranscriptDelta(item_id=turn.item_id, text=text[len(turn.told) :]))
            turn.told = text
