"""Videos for a Muse decoder: a group of frames at a time, so that a camera is seen as it runs.

Groups don't see each other: what a group becomes depends on its own frames alone, and a video fed
frame by frame gives the rows of the whole.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from sensorium.encoders.base import ClipHints, EncoderSources, Output, Rows
from sensorium.encoders.image import revision, vision_of
from sensorium.encoders.media import PICTURE_RATE_HZ, Intake, MediaFrame, Pixels
from sensorium.encoders.sizing import misfit
from sensorium.encoders.vit import Group, VisionTower
from sensorium.encoders.vit_config import VisionSettings


@dataclass(slots=True)
class VideoClip:
    """A clip's state: the frames that wait for their group's last, and why it can't be seen.

    `start_s` is the time of the first that waits.
    """

    waiting: list[Pixels] = field(default_factory=list)
    start_s: float = 0.0
    num_frames: int = 0
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shot:
    """A complete group of one of the clips of a call."""

    clip: int
    start_s: float
    frames: Group


class MuseVideo:
    """Makes rows of videos; fits `encoders.base.Encoder[VideoClip]`.

    Consecutive frames form groups in the order they come; the time of a group's first stands before
    its rows as text. At the end an incomplete group is filled up with its last frame. Frames of a
    group must have one size; the next group may have another. Whoever sends frames chooses them
    (encoders/frame_choice.py) and sizes them; a clip of others ends with a `problem`.
    """

    name = "muse-video"
    max_batch = 8

    @classmethod
    def load(cls, sources: EncoderSources) -> "MuseVideo | None":
        """Return the encoder of a checkpoint with a vision tower, None for one without.

        Raises ValueError for a tower or preprocessing that isn't Muse's.
        """
        eyes = vision_of(sources)
        return None if eyes is None else cls(*eyes)

    def __init__(self, tower: VisionTower, settings: VisionSettings) -> None:
        self._tower = tower
        self._time_format = settings.time_format
        self.revision = revision(tower, settings)
        self.intake = Intake(
            encoder=self.name,
            rate_hz=PICTURE_RATE_HZ,
            dtype="uint8",
            shape=(-1, -1, 3),
            gives_rows=True,
            cell_px=tower.config.cell_px,
            max_cells=settings.video_cells,
            fps=settings.fps,
            max_frames=settings.max_frames,
            frames_per_group=tower.config.frames_per_group,
        )

    def open(self, hints: ClipHints) -> VideoClip:
        """Return the state of a new clip."""
        return VideoClip()

    def ready(self, state: VideoClip, num_ticks: int) -> bool:
        """Tell whether `num_ticks` more frames complete a group."""
        return len(state.waiting) + num_ticks >= self.intake.frames_per_group

    def push(self, frames: list[tuple[MediaFrame, ...]], states: list[VideoClip]) -> list[Output]:
        """Encode the groups that are complete now, of all clips together."""
        shots = [
            shot
            for index, (run, clip) in enumerate(zip(frames, states, strict=True))
            for shot in self._shots(index, run, clip)
        ]
        return self._outputs(shots, states)

    def anticipate(self, states: list[VideoClip]) -> None:
        """Nothing is prepared: most ends leave no group open."""

    def flush(self, states: list[VideoClip]) -> list[Output]:
        """Encode the groups left open, their last frame repeated, and end each clip."""
        shots = []
        for index, clip in enumerate(states):
            if not clip.num_frames:
                clip.problem = "There is no frame in this video."
            if clip.waiting:
                missing = self.intake.frames_per_group - len(clip.waiting)
                clip.waiting += clip.waiting[-1:] * missing
                shots.append(_shot(index, clip))
        return self._outputs(shots, states)

    def _shots(self, index: int, run: Iterable[MediaFrame], clip: VideoClip) -> Iterable[_Shot]:
        for frame in run:
            for pts, pixels in enumerate(frame.data, frame.pts):
                self._take(clip, pts / frame.rate_hz, pixels)
                if len(clip.waiting) == self.intake.frames_per_group:
                    yield _shot(index, clip)

    def _take(self, clip: VideoClip, time_s: float, pixels: Pixels) -> None:
        """Let a frame wait for its group, unless there is a problem with it."""
        clip.num_frames += 1
        height, width, _ = pixels.shape
        intake = self.intake
        problem = misfit(height, width, cell_px=intake.cell_px, max_cells=intake.max_cells)
        if clip.waiting and clip.waiting[0].shape != pixels.shape:
            before = clip.waiting[0].shape
            problem = (
                f"Frame {clip.num_frames} of this video is {height} × {width} px, the one it is "
                f"encoded with {before[0]} × {before[1]}."
            )
        clip.problem = clip.problem or problem
        if clip.problem is not None:
            clip.waiting.clear()
            return
        if not clip.waiting:
            clip.start_s = time_s
        clip.waiting.append(pixels)

    def _outputs(self, shots: list[_Shot], states: list[VideoClip]) -> list[Output]:
        shots = [shot for shot in shots if states[shot.clip].problem is None]
        encoded = self._tower.encode([shot.frames for shot in shots])
        rows: list[list[Rows]] = [[] for _ in states]
        for shot, values in zip(shots, encoded, strict=True):
            lead = self._time_format.format(timestamp=shot.start_s)
            rows[shot.clip].append(Rows(values=values, start_s=shot.start_s, lead=lead))
        return [
            Output(rows=tuple(made), problem=clip.problem, encoder=self.name)
            for made, clip in zip(rows, states, strict=True)
        ]


def _shot(index: int, clip: VideoClip) -> _Shot:
    """Take a clip's complete group out of it."""
    frames, clip.waiting = np.stack(clip.waiting), []
    return _Shot(clip=index, start_s=clip.start_s, frames=frames)
