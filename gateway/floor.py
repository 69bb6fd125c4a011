"""Who has the floor: what a stream's sound means for the conversation, counted in media time.

| floor | on                                                    | to    |
|-------|-------------------------------------------------------|-------|
| IDLE  | speech on the stream, or sound without turn detection | USER  |
| USER  | commit, or silence past the endpoint                  | IDLE  |
| IDLE  | a response is wanted and all spoken turns were heard  | MODEL |
| MODEL | the engine ended the response, or cancel              | IDLE  |
| MODEL | speech that may interrupt                             | USER  |

Speech during a response that may not be interrupted is kept and heard after it. What the engine
does for whoever has the floor is tail.py's.
"""

from collections.abc import Callable, Mapping

import numpy as np

from sensorium.core.api import ModelInfo
from sensorium.encoders.media import Samples
from sensorium.gateway.client_events import AppendPicture
from sensorium.gateway.configuration import SessionConfig
from sensorium.gateway.errors import PeerError
from sensorium.gateway.ingest import Timeline
from sensorium.gateway.items import AudioPart, Item
from sensorium.gateway.listening import Listener
from sensorium.gateway.media import FileDecoded, FileRefused
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.seeing import Seeing
from sensorium.gateway.server_events import (
    AudioCleared,
    AudioCommitted,
    ItemAdded,
    ItemDone,
    SpeechStarted,
    SpeechStopped,
)
from sensorium.gateway.settings import SessionSettings
from sensorium.gateway.spoken_turn import SpokenTurn
from sensorium.gateway.tail import Tail
from sensorium.gateway.turns import Change, VoiceActivity

_MIN_COMMIT_MS = 100


class Floor:
    """One stream of sound and its turns, with what is seen beside it (seeing.py).

    Raises ValueError for a model whose rate the speech detector's windows don't fit (turns.py).
    """

    def __init__(
        self,
        *,
        model: ModelInfo,
        settings: SessionSettings,
        config: SessionConfig,
        outbox: Outbox,
        tail: Tail,
        new_id: Callable[[str], str],
    ) -> None:
        self._settings = settings
        self._config = config
        self._outbox = outbox
        self._tail = tail
        self._hearing = tail.hearing
        self._new_id = new_id
        self._rate_hz = model.audio_rate_hz
        self._seeing = Seeing(outbox, tail, model)
        self._timeline = Timeline(config.input_format, self._rate_hz)
        self._listener = Listener(config.turn_detection, outbox.score, rate_hz=self._rate_hz)

    def append(self, data: bytes) -> None:
        """Take sound in the session's input format; raises PeerError when too much waits."""
        limit_s = self._settings.max_buffered_s
        if self._waiting_samples() > limit_s * self._rate_hz:
            raise PeerError(
                "buffer_overflow",
                f"More than {limit_s:g} s of sound wait to be heard; this piece was dropped. "
                "Send at speaking pace.",
            )
        self._append_undetected(self._listener.append(self._timeline.append(data)))

    def show(self, event: AppendPicture) -> None:
        """Take a frame of the camera; raises PeerError for one that can't be taken."""
        self._seeing.append(event, self._listener.position + self._listener.num_unscored)

    def look(self, event: FileDecoded | FileRefused) -> bool:
        """Take what a file was decoded to; returns whether it is a frame of the camera."""
        return self._seeing.advance(event)

    @property
    def frame_counts(self) -> Mapping[str, int]:
        """What became of the camera's frames (`Camera.counts`)."""
        return self._seeing.counts

    def hear(self, verdict: VoiceActivity) -> None:
        """Take the verdict on the next window of sound."""
        turn = self._hearing.current
        heard = self._listener.hear(verdict, in_turn=turn is not None)
        here = self._listener.position
        if turn is None or heard is None:
            self._seeing.pass_by(here)
            if heard is not None:
                self._start_turn(heard.sound)
            return
        self._speak(turn, heard.sound)
        self._seeing.pass_by(here)
        if heard.change is Change.PAUSED:
            self._seeing.pause(turn, here)
            self._hearing.anticipate()
        if heard.change is Change.STOPPED or turn.num_samples >= self._max_turn_samples():
            self._outbox.say(
                SpeechStopped(item_id=turn.item_id, audio_end_ms=self._listener.position_ms)
            )
            self._listener.end_turn()
            detection = self._config.turn_detection
            respond = detection is not None and detection.create_response
            self._commit(turn, before=here, respond=respond)

    def commit(self) -> None:
        """The client says that the buffered sound is a turn; raises PeerError if there is none."""
        turn = self._hearing.current
        buffered = (turn.num_samples if turn else 0) + self._listener.num_unscored
        buffered_ms = buffered * 1000 // self._rate_hz
        if buffered_ms < _MIN_COMMIT_MS and not self._seeing.has_frames:
            raise PeerError(
                "input_audio_buffer_commit_empty",
                f"The buffer holds {buffered_ms} ms of sound; a commit needs at least "
                f"{_MIN_COMMIT_MS} ms.",
            )
        if self._listener.is_detecting:
            sound = self._listener.take_unscored()
        else:
            sound = self._listener.append(self._timeline.flush())
        turn = self._hearing.current or self._begin_turn(sound)
        self._speak(turn, sound)
        self._listener.end_turn()
        self._commit(turn, before=self._listener.position + 1, respond=False)

    def clear(self) -> None:
        """Throw away the sound and the frames that aren't committed."""
        if self._hearing.current is not None:
            self._hearing.drop(self._hearing.current)
        self._seeing.clear()
        self._listener.take_unscored()
        self._listener.end_turn()
        self._timeline.reset()
        self._outbox.say(AudioCleared())

    def hear_item(self, item: Item) -> None:
        """Hear the sound that came inside an item, in the session's format, like a turn's.

        What becomes rows keeps its place among the item's parts instead (viewing.py).
        """
        if self._hearing.gives_rows:
            return
        sounds = [
            self._samples(part.data)
            for part in item.content
            if isinstance(part, AudioPart) and part.data
        ]
        if sounds:
            turn = SpokenTurn(item_id=item.item_id, is_inline=True, committed=True)
            for samples in sounds:
                turn.append(samples)
            self._hearing.begin(turn)

    def _samples(self, data: bytes) -> Samples:
        timeline = Timeline(self._config.input_format, self._rate_hz)
        return np.concatenate([timeline.append(data), timeline.flush()])

    def configure(self, config: SessionConfig) -> None:
        """Use other settings; raises PeerError, and changes nothing, if they can't be used now."""
        if config.input_format != self._config.input_format:
            if self._hearing.current is not None or self._listener.num_unscored:
                raise PeerError(
                    "invalid_value",
                    "The format can't change while uncommitted sound is buffered; commit or clear "
                    "it first.",
                    param="session.audio.input.format",
                )
            self._timeline.set_format(config.input_format)
        turn = self._hearing.current
        sound = self._listener.configure(config.turn_detection, in_turn=turn is not None)
        if turn is not None:
            turn.append(sound)
        self._config = config
        self._seeing.interleave = config.interleave

    def wants_input(self) -> bool:
        """Whether more sound is welcome."""
        return self._waiting_samples() < self._settings.max_buffered_s * self._rate_hz / 2

    def _waiting_samples(self) -> int:
        return self._hearing.backlog_samples + self._listener.num_unscored

    def _max_turn_samples(self) -> float:
        return self._settings.max_turn_s * self._rate_hz

    def _append_undetected(self, sound: Samples) -> None:
        if not len(sound):
            return
        turn = self._hearing.current or self._begin_turn(sound)
        if turn.num_samples + len(sound) > self._max_turn_samples():
            raise PeerError(
                "buffer_overflow",
                f"A turn holds at most {self._settings.max_turn_s:g} s of sound; this piece was "
                "dropped. Commit or clear the buffer.",
            )
        self._speak(turn, sound)

    def _begin_turn(self, sound: Samples) -> SpokenTurn:
        """Begin a turn whose first sound is `sound`, which is still to be appended."""
        turn = SpokenTurn(
            item_id=self._new_id("item"),
            start_ms=max(0, self._listener.position_ms - len(sound) * 1000 // self._rate_hz),
            keeps_sound=self._hearing.gives_rows,
        )
        self._hearing.begin(turn)
        self._seeing.begin(turn, self._listener.position - len(sound))
        return turn

    def _speak(self, turn: SpokenTurn, sound: Samples) -> None:
        """Add the newest sound of the stream to the turn."""
        self._seeing.speak(turn, self._listener.position - len(sound), sound)

    def _start_turn(self, sound: Samples) -> None:
        turn = self._begin_turn(sound)
        self._outbox.say(SpeechStarted(item_id=turn.item_id, audio_start_ms=turn.start_ms))
        detection = self._config.turn_detection
        if detection is not None and detection.interrupt_response:
            self._tail.interrupt()
        turn.append(sound)

    def _commit(self, turn: SpokenTurn, *, before: int, respond: bool) -> None:
        """End a turn with the frames from before a time; they may still be decoded for its item."""
        self._seeing.end(turn, before)
        turn.committed, turn.respond = True, respond
        item = Item(item_id=turn.item_id, role="user", content=turn.parts())
        previous = self._tail.conversation.insert(item, None)
        self._outbox.say(
            AudioCommitted(item_id=turn.item_id, previous_item_id=previous),
            ItemAdded(item=item, previous_item_id=previous),
        )
        if turn.unsettled is None:
            self._outbox.say(ItemDone(item=item, previous_item_id=previous))
        self._tail.context.drop_excess_items()
