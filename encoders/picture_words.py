"""The embedded default's eyes: a picture becomes a line of words, what it shows and what it says.

Labels come from efficientnet.py, text from ocr.py where the extra `ocr` is installed, the wording
from labels.py.
"""

from dataclasses import dataclass
from pathlib import Path

from sensorium.encoders.base import ClipHints, EncoderSources, Output
from sensorium.encoders.efficientnet import PASS_PICTURES, load_classifier
from sensorium.encoders.labels import MAX_LABELS, MAX_TEXT_CHARACTERS, picture_line
from sensorium.encoders.media import PICTURE_RATE_HZ, Intake, MediaFrame
from sensorium.encoders.ocr import TextReader

REVISION = 1
"""Counts what the wording and the preprocessing have been."""
CELL_PX = 16
"""Pictures come in whole cells although no embeddings are made of them, so that the cap of a wanted
`detail: low`, counted in cells, leaves what labels need: 256 x 256 pixels.
"""
READABLE_CELLS = 1024 * 768 // CELL_PX**2
"""A page is legible, and reading it takes about a second."""
VISIBLE_CELLS = 640 * 480 // CELL_PX**2
"""More than enough for labels."""


@dataclass(slots=True)
class PictureClip:
    """State of one clip: how many pictures it has had."""

    num_pictures: int = 0


class PictureWords:
    """Describes pictures; fits `encoders.base.Encoder[PictureClip]`.

    A picture is described as soon as it is pushed, since nothing after it could change that.
    """

    @classmethod
    def load(cls, sources: EncoderSources) -> "PictureWords | None":
        """Return the encoder of the model for the role "pictures", None if there is none.

        Raises RuntimeError, ValueError, OSError or KeyError for files that are no such model.
        """
        folder = sources.model("pictures")
        return None if folder is None else cls(folder, TextReader.load())

    def __init__(self, model_dir: Path, reader: TextReader | None = None) -> None:
        self._classifier = load_classifier(model_dir)
        self._reader = reader
        self.name = f"{model_dir.name}+{reader.name}" if reader else model_dir.name
        self.revision = f"{self.name} {REVISION}"
        self.max_batch = 1 if reader else PASS_PICTURES  # nobody waits while another's is read
        self.intake = Intake(
            encoder=self.name,
            rate_hz=PICTURE_RATE_HZ,
            dtype="uint8",
            shape=(-1, -1, 3),
            cell_px=CELL_PX,
            max_cells=READABLE_CELLS if reader else VISIBLE_CELLS,
        )

    def open(self, hints: ClipHints) -> PictureClip:
        """Return the state of a new clip; nothing is hinted at."""
        return PictureClip()

    def ready(self, state: PictureClip, num_ticks: int) -> bool:
        """Tell whether there is a picture to describe."""
        return num_ticks > 0

    def push(self, frames: list[tuple[MediaFrame, ...]], states: list[PictureClip]) -> list[Output]:
        """Describe the pictures of each clip, a line each; all are classified together."""
        pictures = [[pixels for frame in run for pixels in frame.data] for run in frames]
        everything = [pixels for of_clip in pictures for pixels in of_clip]
        labels = iter(self._classifier.classify(everything, MAX_LABELS))
        outputs = []
        for of_clip, state in zip(pictures, states, strict=True):
            lines = []
            for pixels in of_clip:
                text = self._reader.read(pixels, MAX_TEXT_CHARACTERS) if self._reader else ""
                lines.append(f" {picture_line(next(labels), text)}")
            state.num_pictures += len(of_clip)
            outputs.append(Output(text="".join(lines), encoder=self.name))
        return outputs

    def anticipate(self, states: list[PictureClip]) -> None:
        """Nothing is left to prepare."""

    def flush(self, states: list[PictureClip]) -> list[Output]:
        """End each clip; one that had no picture ends with a problem."""
        return [
            Output(
                problem=None if state.num_pictures else "There was no picture to look at.",
                encoder=self.name,
            )
            for state in states
        ]
