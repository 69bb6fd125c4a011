"""Pictures for a Muse decoder: one frame a clip, one row a cell, encoded as soon as it is there."""

import hashlib
from dataclasses import dataclass

import numpy as np

from sensorium.encoders.base import ClipHints, EncoderSources, Output, Rows
from sensorium.encoders.media import PICTURE_RATE_HZ, Intake, MediaFrame, Pixels
from sensorium.encoders.sizing import misfit
from sensorium.encoders.vit import Group, VisionTower, shared_tower
from sensorium.encoders.vit_config import SECTION, VisionSettings


@dataclass(slots=True)
class ImageClip:
    """A clip's state: how many frames it got (one is right), and why it can't be seen."""

    num_frames: int = 0
    problem: str | None = None


class MuseImage:
    """Makes rows of pictures; fits `encoders.base.Encoder[ImageClip]`.

    All rows are of the picture's own moment. A clip of no or several pictures, or of one that
    wasn't sized for the tower, ends with a `problem`.
    """

    name = "muse-image"
    max_batch = 8

    @classmethod
    def load(cls, sources: EncoderSources) -> "MuseImage | None":
        """Return the encoder of a checkpoint with a vision tower, None for one without.

        Raises ValueError for a tower or preprocessing that isn't Muse's.
        """
        eyes = vision_of(sources)
        return None if eyes is None else cls(*eyes)

    def __init__(self, tower: VisionTower, settings: VisionSettings) -> None:
        self._tower = tower
        self.revision = revision(tower, settings)
        self.intake = Intake(
            encoder=self.name,
            rate_hz=PICTURE_RATE_HZ,
            dtype="uint8",
            shape=(-1, -1, 3),
            gives_rows=True,
            cell_px=tower.config.cell_px,
            max_cells=settings.image_cells,
            max_frames=1,
        )

    def open(self, hints: ClipHints) -> ImageClip:
        """Return the state of a new clip."""
        return ImageClip()

    def ready(self, state: ImageClip, num_ticks: int) -> bool:
        """A picture is complete when it is there."""
        return num_ticks > 0

    def push(self, frames: list[tuple[MediaFrame, ...]], states: list[ImageClip]) -> list[Output]:
        """Encode the pictures that came, all in one pass."""
        pictures: dict[int, tuple[float, Pixels]] = {}
        for index, (run, clip) in enumerate(zip(frames, states, strict=True)):
            for frame in run:
                for pixels in frame.data:
                    self._take(clip, pixels)
                    pictures[index] = (frame.start_s, pixels)
        wanted = {index: p for index, p in pictures.items() if states[index].problem is None}
        encoded = self._tower.encode([self._group(pixels) for _, pixels in wanted.values()])
        rows = {
            index: (Rows(values=values, start_s=start_s),)
            for (index, (start_s, _)), values in zip(wanted.items(), encoded, strict=True)
        }
        return [
            Output(rows=rows.get(index, ()), problem=clip.problem, encoder=self.name)
            for index, clip in enumerate(states)
        ]

    def anticipate(self, states: list[ImageClip]) -> None:
        """Nothing is left to prepare."""

    def flush(self, states: list[ImageClip]) -> list[Output]:
        """End each clip; its rows are out already."""
        return [
            Output(
                problem=clip.problem if clip.num_frames else "There is no picture.",
                encoder=self.name,
            )
            for clip in states
        ]

    def _take(self, clip: ImageClip, pixels: Pixels) -> None:
        clip.num_frames += 1
        if clip.num_frames > 1:
            clip.problem = f"A picture is one frame, got {clip.num_frames} in one clip."
        else:
            height, width, _ = pixels.shape
            intake = self.intake
            clip.problem = misfit(height, width, cell_px=intake.cell_px, max_cells=intake.max_cells)

    def _group(self, pixels: Pixels) -> Group:
        """A still picture is a group of frames that all show it."""
        return np.broadcast_to(pixels, (self._tower.config.frames_per_group, *pixels.shape))


def vision_of(sources: EncoderSources) -> tuple[VisionTower, VisionSettings] | None:
    """Return the tower that pictures and videos share, and its settings; None if there is none."""
    if not sources.config.get(SECTION):
        return None
    tower = shared_tower(sources)
    return tower, VisionSettings.read(sources.folder, tower.config)


def revision(tower: VisionTower, *settings: object) -> str:
    """Return what changes with the tower's numbers and with how media is prepared for it."""
    return hashlib.sha256(f"{tower.fingerprint} {settings}".encode()).hexdigest()[:16]
