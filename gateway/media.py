"""Media of a conversation: files on their way to being decoded, and clips as the engine takes them.

What is decoded is kept, so that it can be put into another sequence, or into a restarted engine.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from sensorium.encoders.media import Intake, MediaFrame, Pts
from sensorium.gateway.configuration import AudioFormat

Detail = Literal["auto", "low", "high"]
Modality = Literal["image", "video", "audio"]
"""Those that a client can send."""

MAX_PIECE_BYTES = 4 << 20
"""Longer sound is handed to the engine in pieces; one picture is one piece."""

_MARKS = 2
"""Positions of the marks around a clip's rows."""
_WORDS_OF_PICTURE = 96
_LEAD_OF_GROUP = 10
"""Positions of words where an encoder makes words, and of a group's time with what divides it from
the one before, until they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToDecode:
    """A part of an item whose bytes are to be decoded; answered by FileDecoded or FileRefused.

    `number` names it in the answer. Sound comes bare, in the format `sound`, and is kept whole.
    What is decoded may take `max_bytes`. A picture that `is_frame` of a camera is sized like one of
    a video, where the model takes videos.
    """

    number: int
    modality: Modality
    data: bytes
    max_bytes: int
    detail: Detail = "auto"
    sound: AudioFormat = field(default_factory=AudioFormat)
    is_frame: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A frame as it is sent to the engine: bytes already, for they are many and sent again."""

    pts: int
    shape: tuple[int, ...]
    dtype: Literal["float32", "uint8"]
    data: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Medium:
    """One picture, video or clip of sound, whole and decoded.

    `content` names it by a hash of all its frames. `num_positions` is an estimate until the engine
    has said how many it took. `encoder` makes embeddings of it, or words.
    """

    modality: str
    encoder: str
    pieces: tuple[Piece, ...]
    content: str
    gives_rows: bool
    num_positions: int

    @property
    def num_bytes(self) -> int:
        """Memory that it takes."""
        return sum(len(piece.data) for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDecoded:
    """The media of a part: a picture; or the frames of a video, and its sound if it has some."""

    number: int
    media: tuple[Medium, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRefused:
    """A part that can't be decoded, and why."""

    number: int
    code: str
    message: str


def medium(modality: str, frames: Sequence[MediaFrame], intake: Intake) -> Medium:
    """Return decoded frames as one clip. Touches every byte: off the event loop, if they are many.

    Times are counted from the clip's own start.
    """
    start = frames[0].pts if frames else 0
    shifted = [replace(frame, pts=Pts(frame.pts - start)) for frame in frames]
    return Medium(
        modality=modality,
        encoder=intake.encoder,
        pieces=pieces_of(shifted),
        content=content_of(shifted),
        gives_rows=intake.gives_rows,
        num_positions=estimate(shifted, intake),
    )


def pieces_of(frames: Sequence[MediaFrame]) -> tuple[Piece, ...]:
    """Return frames as bytes, long ones cut: what may be sent in one message."""
    return tuple(
        Piece(
            pts=part.pts,
            shape=part.data.shape,
            dtype="uint8" if part.data.dtype == "uint8" else "float32",
            data=part.data.tobytes(),
        )
        for frame in frames
        for part in _cut(frame)
    )


def _cut(frame: MediaFrame) -> Iterator[MediaFrame]:
    """Yield a frame in parts of MAX_PIECE_BYTES, or of one tick that takes more."""
    rest = frame
    step = max(1, MAX_PIECE_BYTES * len(frame.data) // max(1, frame.data.nbytes))
    while len(rest.data) > step:
        head, rest = rest.split(step)
        yield head
    if len(rest.data):
        yield rest


def content_of(frames: Sequence[MediaFrame]) -> str:
    """Return the SHA-256, in hex, of all that an encoder sees of a clip."""
    digest = hashlib.sha256()
    for frame in frames:
        head = [frame.pts, frame.rate_hz, str(frame.data.dtype), frame.data.shape]
        digest.update(json.dumps(head).encode())
        digest.update(np.ascontiguousarray(frame.data).data)
    return digest.hexdigest()


def estimate(frames: Sequence[MediaFrame], intake: Intake) -> int:
    """Return how many positions a clip will take: exactly for rows, but for the times of a video.

    Example: a picture of 20 × 10 cells takes 202, with its marks.
    """
    if intake.gives_rows and intake.ticks_per_row:
        num_ticks = sum(len(frame.data) for frame in frames)
        return -(-num_ticks // intake.ticks_per_row) + _MARKS if num_ticks else 0
    if intake.gives_rows and intake.cell_px:
        groups = frames[:: intake.frames_per_group]
        cells = sum(_num_cells(frame, intake.cell_px) for frame in groups)
        is_video = intake.max_frames > 1
        return cells + _MARKS + (_LEAD_OF_GROUP * len(groups) - 1 if is_video else 0)
    return _WORDS_OF_PICTURE


def _num_cells(frame: MediaFrame, cell_px: int) -> int:
    _, height, width, _ = frame.data.shape
    return int((height // cell_px) * (width // cell_px))
