"""Where the frames of a camera stand in spoken turns: behind their sound, before it, or within it.

Outside a turn the newest frame is kept, and the next turn begins with it. The others of a turn
stand at its end, or with `interleave` (configuration.py) where the speaker pauses and after so many
seconds. What stands where depends on the times of sound and frames, not on how fast they are
decoded: what is spoken behind such a place waits until they are, and goes on with the sound before
it where they turn out to show nothing new.
"""

from collections.abc import Mapping
from dataclasses import replace

from sensorium.core.api import ModelInfo
from sensorium.encoders.media import Samples
from sensorium.gateway.camera import Camera
from sensorium.gateway.client_events import AppendPicture
from sensorium.gateway.media import FileDecoded, FileRefused
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.server_events import ItemDone
from sensorium.gateway.spoken_turn import SpokenTurn
from sensorium.gateway.tail import Tail

_MAX_BYTES = 24 << 20
"""Of frames in one turn. They may take half of the model's positions."""


class Seeing:
    """The camera of one stream of sound. Times are in samples of the stream since its beginning."""

    def __init__(self, outbox: Outbox, tail: Tail, model: ModelInfo) -> None:
        self.interleave: float | None = None
        self._outbox = outbox
        self._tail = tail
        self._rate_hz = model.audio_rate_hz
        self._max_positions = model.max_positions // 2
        self._camera = Camera(outbox, model.intakes, self._rate_hz)

    @property
    def counts(self) -> Mapping[str, int]:
        """What became of the camera's frames (`Camera.counts`)."""
        return self._camera.counts

    @property
    def has_frames(self) -> bool:
        """Whether there is something to see in the turn, or for one that begins now."""
        return self._camera.has_frames

    def append(self, event: AppendPicture, time: int) -> None:
        """Take a frame that came when so much sound had come; raises PeerError."""
        self._camera.append(event, time)

    def advance(self, event: FileDecoded | FileRefused) -> bool:
        """Take the answer about a file; returns whether it was a frame's."""
        is_frame = self._camera.advance(event)
        if is_frame:
            self._settle()
        return is_frame

    def begin(self, turn: SpokenTurn, start: int) -> None:
        """A turn begins, with its sound from `start` on, behind the newest frame."""
        turn.cut_at = start
        self._camera.pass_by(start + 1)
        self._camera.begin_turn(turn.item_id)
        self._leave_place(turn, start, before=self._camera.seen_at + 1)

    def pass_by(self, before: int) -> None:
        """The sound up to a time has been judged: look at the frames from before it."""
        self._camera.pass_by(before)

    def speak(self, turn: SpokenTurn, start: int, sound: Samples) -> None:
        """Add sound to the turn, cut where waiting frames get a place in it."""
        self._camera.pass_by(start + 1)
        if self.interleave is not None and self._camera.seen_at >= turn.viewed_before:
            due = max(start, turn.cut_at + round(self.interleave * self._rate_hz))
            if due < start + len(sound):
                turn.append(sound[: due - start])
                self._leave_place(turn, due, before=start + 1)
                sound = sound[due - start :]
        turn.append(sound)

    def pause(self, turn: SpokenTurn, here: int) -> None:
        """The speaker pauses."""
        if self.interleave is not None:
            self._leave_place(turn, here, before=here)

    def end(self, turn: SpokenTurn, before: int) -> None:
        """The turn ends; its last frames are those from before a time."""
        self._camera.pass_by(before)
        self._leave_place(turn, before, before=before)
        self._camera.end_turn()

    def clear(self) -> None:
        """Forget the frames that don't belong to a turn which has ended."""
        self._camera.clear()

    def _leave_place(self, turn: SpokenTurn, at: int, *, before: int) -> None:
        """Give frames from before a time a place in the turn, if there are any that were due."""
        if self._camera.seen_at >= turn.viewed_before:
            turn.cut_at = at
            turn.leave_place(before)
            self._settle()

    def _settle(self) -> None:
        """Fill the places whose frames are decoded, turn by turn."""
        for turn in self._tail.hearing.turns:
            while (place := turn.unsettled) is not None:
                if not self._camera.is_settled(turn.item_id, place.before):
                    return
                seen = turn.seen()
                media = self._camera.take(
                    turn.item_id,
                    place.before,
                    max_bytes=_MAX_BYTES - sum(medium.num_bytes for medium in seen),
                    max_positions=self._max_positions - sum(m.num_positions for m in seen),
                )
                turn.settle(media)
                if turn.committed and turn.unsettled is None:
                    self._finish(turn)

    def _finish(self, turn: SpokenTurn) -> None:
        """All of a committed turn is known: tell its item, or drop it if nothing is left of it."""
        conversation, context = self._tail.conversation, self._tail.context
        is_kept = turn.item_id in conversation
        if not turn.pieces:
            self._tail.hearing.drop(turn)
            if is_kept:
                context.forget(turn.item_id)
        elif is_kept:
            item = replace(conversation[turn.item_id], content=turn.parts())
            conversation.update(item)
            previous = conversation.previous_id(item.item_id)
            self._outbox.say(ItemDone(item=item, previous_item_id=previous))
