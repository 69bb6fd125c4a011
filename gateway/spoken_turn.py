"""One turn of the user's: stretches of sound, and what was seen between them, in media time.

Without a camera a turn is one stretch. Where frames are given a place (camera.py) the sound before
it ends as a clip of its own and the sound after it begins another, so that the turn is what an item
[sound, pictures, sound, …] would be.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sensorium.core.api import Heard, SpanClosed, SpanId
from sensorium.encoders.base import ClipHints
from sensorium.encoders.media import Intake, MediaFrame, Pts, Samples
from sensorium.gateway.items import AudioPart, Part, PicturePart, VideoPart
from sensorium.gateway.media import Medium, pieces_of


@dataclass(slots=True)
class Stretch:
    """Sound of a turn without anything between: one clip. `closed` is what the engine made of it.

    `settled` is the text heard in this attempt, `pending` what follows and may change. With
    `keeps_sound` its bytes are hashed as they come, for a medium of it.
    """

    keeps_sound: bool = False
    settled: str = ""
    pending: str = ""
    closed: SpanClosed | None = None
    span: SpanId | None = None
    chunks: list[Samples] = field(default_factory=list)
    num_chunks_sent: int = 0
    num_samples: int = 0
    num_sent: int = 0
    _hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    @property
    def content(self) -> str:
        """The name of all its sound for `CloseSpan`: its SHA-256, "" if it isn't kept."""
        return self._hash.hexdigest() if self.keeps_sound else ""

    def append(self, samples: Samples) -> None:
        """Add sound at the end."""
        self.chunks.append(samples)
        self.num_samples += len(samples)
        if self.keeps_sound:
            self._hash.update(samples.data)

    def medium(self, intake: Intake) -> Medium:
        """Return all its sound as a clip of the conversation; it must be one that keeps it."""
        assert self.keeps_sound
        samples = np.concatenate([np.zeros(0, np.float32), *self.chunks])
        frame = MediaFrame(pts=Pts(0), rate_hz=intake.rate_hz, data=samples)
        return Medium(
            modality="audio",
            encoder=intake.encoder,
            pieces=pieces_of([frame]),
            content=self.content,
            gives_rows=True,
            num_positions=self.closed.num_positions if self.closed else 0,
        )

    def start_over(self) -> None:
        """Nothing of it stands in the engine (any more)."""
        self.span = self.closed = None
        self.settled = self.pending = ""
        self.num_chunks_sent = self.num_sent = 0


@dataclass(slots=True)
class View:
    """A place in a turn for the frames that were taken `before` a time, in samples of the stream.

    `media` is None until all of them are decoded.
    """

    before: int
    media: tuple[Medium, ...] | None = None


@dataclass(slots=True)
class SpokenTurn:
    """One turn of the user's. `told` is what the peer has seen of its words as deltas.

    `is_inline`: its sound came as a part of an item. `viewed_before` and `cut_at` say, in samples
    of the stream, up to where frames have got their place, and when that was last looked after.

    While it `is_live` its first `num_placed` pieces stand in the engine, and what there is of the
    next; `open_spans` are those of their spans that aren't encoded to their end.
    """

    item_id: str
    start_ms: int = 0
    is_inline: bool = False
    keeps_sound: bool = False
    committed: bool = False
    respond: bool = False
    told: str = ""
    num_attempts: int = 0
    refused_since: float | None = None
    viewed_before: int = 0
    cut_at: int = 0
    pieces: list[Stretch | View] = field(default_factory=list)
    hints: ClipHints = field(default_factory=ClipHints)
    is_live: bool = False
    num_placed: int = 0
    num_taken: int = 0
    ends_in_words: bool = False
    open_spans: dict[SpanId, Stretch | None] = field(default_factory=dict)

    # --- what it is made of -----------------------------------------------------------------------

    @property
    def stretches(self) -> list[Stretch]:
        """Its sound, in order."""
        return [piece for piece in self.pieces if isinstance(piece, Stretch)]

    @property
    def num_samples(self) -> int:
        """How much sound it has."""
        return sum(stretch.num_samples for stretch in self.stretches)

    @property
    def unsettled(self) -> View | None:
        """The first place whose frames aren't decoded yet."""
        return next((p for p in self.pieces if isinstance(p, View) and p.media is None), None)

    def append(self, samples: Samples) -> None:
        """Add sound at the end."""
        if not len(samples):
            return
        if not self.pieces or isinstance(self.pieces[-1], View):
            self.pieces.append(Stretch(keeps_sound=self.keeps_sound))
        last = self.pieces[-1]
        assert isinstance(last, Stretch)
        last.append(samples)

    def leave_place(self, before: int) -> None:
        """The frames taken `before` this time stand here, as soon as they are decoded."""
        self.pieces.append(View(before))
        self.viewed_before = before

    def settle(self, media: tuple[Medium, ...]) -> None:
        """Fill the first unsettled place. Where there is nothing to see the sound goes on."""
        place = next(i for i, piece in enumerate(self.pieces) if piece is self.unsettled)
        if media:
            self.pieces[place] = View(0, media)
            return
        del self.pieces[place]
        around = self.pieces[max(0, place - 1) : place + 1]
        if len(around) == 2 and all(isinstance(piece, Stretch) for piece in around):
            before, after = around
            assert isinstance(before, Stretch)
            assert isinstance(after, Stretch)
            for chunk in after.chunks:
                before.append(chunk)
            del self.pieces[place]

    def parts(self) -> tuple[Part, ...]:
        """Return what it is as the content of an item, as far as that is settled."""
        return tuple(part for part, _ in self._contents(None))

    def media(self, intake: Intake | None) -> dict[int, tuple[Medium, ...]]:
        """Return what the conversation keeps of each part, its sound where that is kept."""
        contents = enumerate(self._contents(intake))
        return {place: (kept,) for place, (_, kept) in contents if kept is not None}

    def seen(self) -> list[Medium]:
        """Return the pictures and videos in it."""
        views = [piece for piece in self.pieces if isinstance(piece, View)]
        return [medium for view in views for medium in view.media or ()]

    def _contents(self, intake: Intake | None) -> Iterator[tuple[Part, Medium | None]]:
        for piece in self.pieces:
            match piece:
                case Stretch():
                    kept = piece.medium(intake) if intake and piece.keeps_sound else None
                    words = None if piece.keeps_sound or not piece.closed else piece.settled.strip()
                    yield AudioPart(transcript=words), kept
                case View(media=media):
                    for medium in media or ():
                        is_video = medium.modality == "video"
                        yield VideoPart() if is_video else PicturePart(), medium

    # --- what was heard of it ---------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether all of it stands in the engine, encoded to its end."""
        all_placed = self.is_live and self.num_placed == len(self.pieces)
        return self.committed and all_placed and not self.open_spans

    @property
    def settled(self) -> str:
        """The text heard in this attempt, up to the first stretch that isn't heard to its end."""
        text = ""
        for stretch in self.stretches:
            text = _joined(text, stretch.settled.lstrip())
            if stretch.closed is None:
                break
        return text

    @property
    def pending(self) -> str:
        """What follows `settled` and may change."""
        stretch = next((s for s in self.stretches if s.closed is None), None)
        if stretch is None or stretch.settled:
            return stretch.pending if stretch else ""
        settled = self.settled
        return _joined(settled, stretch.pending)[len(settled) :]

    @property
    def num_positions(self) -> int:
        """How many positions its sound took."""
        return sum(s.closed.num_positions for s in self.stretches if s.closed)

    @property
    def problem(self) -> str | None:
        """Why it couldn't be heard well."""
        problems = (s.closed.problem for s in self.stretches if s.closed)
        return next((problem for problem in problems if problem is not None), None)

    def hear(self, event: Heard | SpanClosed) -> None:
        """Take the engine's word on one of its open spans."""
        stretch = self.open_spans.get(event.span_id)
        if isinstance(event, SpanClosed):
            del self.open_spans[event.span_id]
            if stretch is not None:
                stretch.closed, stretch.settled, stretch.pending = event, event.transcript, ""
        elif stretch is not None:
            stretch.settled += event.text
            stretch.pending = event.pending

    def start_over(self) -> None:
        """Nothing of it stands in the engine (any more)."""
        self.is_live = self.ends_in_words = False
        self.num_placed = self.num_taken = 0
        self.open_spans.clear()
        for stretch in self.stretches:
            stretch.start_over()


def _joined(before: str, after: str) -> str:
    """Return texts of two clips as one: each clip's own begins without a space."""
    needs_space = before and after and not (before[-1].isspace() or after[0].isspace())
    return f"{before} {after}" if needs_space else before + after
