"""A live camera beside the sound: which frames are decoded, which are worth a place, where they go.

One clock rules both: a frame's time is how much sound of the stream had come when it came, in
samples. Without sound time stands still, and of the frames of one moment the last one that nobody
has looked at counts. Wall time decides nothing, so that a replay takes the same frames.

    arrived ──(sound passes it)──> newest, outside a turn: the pre-roll of the next one
                             └───> due, within one ──> decoded ──> differs ──> waits for its place

Frames are thinned by time before they are decoded, and outside a turn none is.
"""

import hashlib
import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from sensorium.encoders.frame_choice import LiveChoice
from sensorium.encoders.media import PICTURE_RATE_HZ, Intake, MediaFrame, Pts
from sensorium.encoders.sizing import misfit
from sensorium.gateway.client_events import AppendPicture
from sensorium.gateway.errors import PeerError
from sensorium.gateway.media import FileDecoded, FileRefused, FileToDecode, Medium, estimate
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.server_events import ErrorRaised

MAX_PICTURE_BYTES = 1 << 20
"""The file of one frame."""

_MAX_ARRIVED_BYTES = 8 << 20
_MAX_ARRIVED = 64
"""Frames whose sound isn't judged yet."""
_MAX_DECODING = 2
"""Frames of one session that are decoded at once."""
_MAX_WAITING_BYTES = 24 << 20
_MAX_WAITING = 128
"""Frames that wait for their place, decoded or not. In all of these the oldest make way."""
_FPS = 1.0
"""Frames a second for a model that takes pictures only."""


@dataclass(slots=True, eq=False)
class _Frame:
    """A frame of the turn `turn`, "" before it belongs to one; `picture` once it is decoded."""

    time: int
    data: bytes
    event_id: str | None
    turn: str = ""
    number: int = 0
    choice: LiveChoice | None = None
    picture: Medium | None = None
    is_chosen: bool = False

    @property
    def num_bytes(self) -> int:
        return len(self.data) + (self.picture.num_bytes if self.picture else 0)


class Camera:
    """The frames of one stream of pictures, from their files to media of turns.

    `rate_hz` is the rate of the sound whose samples are the clock. `counts` says what became of
    frames: "taken", "unused" (nobody spoke), "skipped" (too soon), "late", "still" (like the one
    before), "refused" (no picture), "dropped" (too many waited, or the turn was full).
    """

    def __init__(self, outbox: Outbox, intakes: Mapping[str, Intake], rate_hz: int) -> None:
        self.counts: Counter[str] = Counter()
        self.seen_at = -1
        self._outbox = outbox
        self._intakes = {m: intakes[m] for m in ("image", "video") if m in intakes}
        self._rate_hz = rate_hz
        video = self._intakes.get("video")
        self._fps = (video and video.fps) or _FPS
        self._max_waiting = min(_MAX_WAITING, (video and video.max_frames) or _MAX_WAITING)
        self._arrived: deque[_Frame] = deque()
        self._newest: _Frame | None = None
        self._turn = ""
        self._choice = LiveChoice(fps=self._fps)
        self._frames: deque[_Frame] = deque()
        self._decoding: set[int] = set()

    def append(self, event: AppendPicture, time: int) -> None:
        """Take a frame that came when so many samples of sound had come; raises PeerError."""
        if not self._intakes:
            raise PeerError(
                "unsupported_content", "This model has no eyes; it takes no pictures.", param="type"
            )
        if not 0 < len(event.data) <= MAX_PICTURE_BYTES:
            raise PeerError(
                "invalid_value",
                f"The picture has {len(event.data)} bytes; expected 1 to {MAX_PICTURE_BYTES}.",
                param="image",
            )
        self._arrived.append(_Frame(time, event.data, event.event_id))
        self._drop_oldest(self._arrived, _MAX_ARRIVED, _MAX_ARRIVED_BYTES)

    @property
    def has_frames(self) -> bool:
        """Whether there is something to see in the turn, or for one that begins now."""
        is_in_turn = bool(self._turn) and any(f.turn == self._turn for f in self._frames)
        return bool(self._arrived) or self._newest is not None or is_in_turn

    # --- turns ------------------------------------------------------------------------------------

    def pass_by(self, before: int) -> None:
        """The sound up to a time has been judged: look at the frames from before it.

        Outside a turn the newest is kept. `seen_at` is the time of the last one due in a turn.
        """
        while self._arrived and self._arrived[0].time < before:
            frame = self._arrived.popleft()
            if self._turn:
                self._see(frame)
            else:
                if self._newest is not None:
                    self.counts["unused"] += 1
                self._newest = frame
        self._decode()

    def begin_turn(self, turn: str) -> None:
        """The frames from now on, and the newest before them, belong to a turn."""
        self._turn, self.seen_at = turn, -1
        self._choice = LiveChoice(fps=self._fps)
        newest, self._newest = self._newest, None
        if newest is not None:
            self._see(newest)
        self._decode()

    def end_turn(self) -> None:
        """The frames from now on belong to no turn."""
        self._turn = ""

    def clear(self) -> None:
        """Forget all frames that don't belong to a turn which has ended."""
        self._arrived.clear()
        self._newest = None
        self._frames = deque(f for f in self._frames if f.turn != self._turn or not self._turn)
        self._turn = ""

    def is_settled(self, turn: str, before: int) -> bool:
        """Whether all of a turn's frames from before a time are decoded and chosen among."""
        return all(f.is_chosen for f in self._frames if f.turn == turn and f.time < before)

    def take(
        self, turn: str, before: int, *, max_bytes: int, max_positions: int
    ) -> tuple[Medium, ...]:
        """Hand over a turn's frames from before a time, as one video or as pictures.

        The oldest are dropped until they take no more memory and positions than that. Frames of
        earlier turns, which nobody fetched, are dropped as well.
        """
        taken: list[_Frame] = []
        while self._frames and (self._frames[0].turn != turn or self._frames[0].time < before):
            frame = self._frames.popleft()
            if frame.turn == turn:
                taken.append(frame)
            else:
                self.counts["dropped"] += 1
        while media := tuple(self._media(taken)):
            num_bytes = sum(medium.num_bytes for medium in media)
            num_positions = sum(medium.num_positions for medium in media)
            if num_bytes <= max_bytes and num_positions <= max_positions:
                break
            del taken[0]
            self.counts["dropped"] += 1
        if taken:
            self.counts["taken"] += len(taken)
        return media

    # --- decoding ---------------------------------------------------------------------------------

    def advance(self, event: FileDecoded | FileRefused) -> bool:
        """Take the answer about a file; returns whether it was a frame's."""
        if event.number not in self._decoding:
            return False
        self._decoding.discard(event.number)
        frame = next((f for f in self._frames if f.number == event.number), None)
        if frame is not None and isinstance(event, FileDecoded):
            frame.picture, frame.data = event.media[0], b""
            self._drop_oldest(self._frames, self._max_waiting, _MAX_WAITING_BYTES)
        elif frame is not None and isinstance(event, FileRefused):
            self._frames.remove(frame)
            self.counts["refused"] += 1
            self._outbox.say(
                ErrorRaised(
                    code=event.code,
                    message=event.message,
                    param="image",
                    event_id=frame.event_id,
                    is_ours=False,
                )
            )
        self._choose()
        self._decode()
        return True

    def _see(self, frame: _Frame) -> None:
        """Let a frame of the turn wait for its place, if it is due."""
        num_late = self._choice.num_late
        if not self._choice.due(frame.time / self._rate_hz):
            self.counts["late" if self._choice.num_late > num_late else "skipped"] += 1
            return
        frame.turn, frame.choice = self._turn, self._choice
        frame.number = next(self._outbox.file_numbers)
        self.seen_at = frame.time
        self._frames.append(frame)
        self._drop_oldest(self._frames, self._max_waiting, _MAX_WAITING_BYTES)

    def _decode(self) -> None:
        for frame in self._frames:
            if len(self._decoding) >= _MAX_DECODING:
                return
            if frame.picture is None and frame.number not in self._decoding:
                self._decoding.add(frame.number)
                self._outbox.decode(
                    FileToDecode(
                        number=frame.number,
                        modality="image",
                        data=frame.data,
                        max_bytes=_MAX_WAITING_BYTES,
                        is_frame=True,
                    )
                )

    def _choose(self) -> None:
        """Look, in the order of time, at the frames that are decoded: do they show news?"""
        for frame in list(self._frames):
            if frame.picture is None or frame.choice is None:
                return
            if not frame.is_chosen:
                time_s, pixels = frame.time / self._rate_hz, _pixels(frame).data[0]
                frame.is_chosen = frame.choice.differs(time_s, pixels)
                if not frame.is_chosen:
                    self._frames.remove(frame)
                    self.counts["still"] += 1

    def _drop_oldest(self, frames: deque[_Frame], most: int, most_bytes: int) -> None:
        while len(frames) > most or sum(frame.num_bytes for frame in frames) > most_bytes:
            frames.popleft()
            self.counts["dropped"] += 1

    # --- media ------------------------------------------------------------------------------------

    def _media(self, frames: Sequence[_Frame]) -> Iterator[Medium]:
        """Runs of frames of one size are videos where the model takes some, else pictures."""
        for shape, group in groupby(frames, key=lambda frame: _pixels(frame).data.shape):
            run = list(group)
            if "video" in self._intakes and (len(run) > 1 or not self._suit(shape[1], shape[2])):
                yield self._medium("video", run)
            else:
                yield from (self._medium("image", [frame]) for frame in run)

    def _suit(self, height: int, width: int) -> bool:
        """Whether frames, sized as a video's, suit the model's eyes for pictures as well."""
        intake = self._intakes.get("image")
        if intake is None:
            return False
        return misfit(height, width, cell_px=intake.cell_px, max_cells=intake.max_cells) is None

    def _medium(self, modality: str, run: Sequence[_Frame]) -> Medium:
        """Return frames as a clip whose time begins with the first; its name is made of theirs."""
        intake = self._intakes[modality]
        pictures = [_picture(frame) for frame in run]
        times = [(f.time - run[0].time) * PICTURE_RATE_HZ // self._rate_hz for f in run]
        names = [picture.content for picture in pictures]
        pieces = [picture.pieces[0] for picture in pictures]
        content = hashlib.sha256(json.dumps([times, names]).encode()).hexdigest()
        return Medium(
            modality=modality,
            encoder=intake.encoder,
            pieces=tuple(replace(p, pts=t) for p, t in zip(pieces, times, strict=True)),
            content=names[0] if len(run) == 1 else content,
            gives_rows=intake.gives_rows,
            num_positions=estimate([_pixels(frame) for frame in run], intake),
        )


def _picture(frame: _Frame) -> Medium:
    assert frame.picture is not None, "only frames that are decoded are looked at"
    return frame.picture


def _pixels(frame: _Frame) -> MediaFrame:
    """Return the picture of a decoded frame, uint8 [1, height, width, 3], without a copy."""
    piece = _picture(frame).pieces[0]
    data = np.frombuffer(piece.data, np.uint8).reshape(piece.shape)
    return MediaFrame(pts=Pts(0), rate_hz=PICTURE_RATE_HZ, data=data)
