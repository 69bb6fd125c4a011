"""The embedded default's view of a video: what its frames show, said where it changes.

    [video: 0 s: tabby cat 62 %; 4 s: leopard 93 %]

Text in frames is not read: that takes a second each.
"""

from dataclasses import dataclass
from pathlib import Path

from sensorium.encoders.base import ClipHints, EncoderSources, Output
from sensorium.encoders.efficientnet import PASS_PICTURES, load_classifier
from sensorium.encoders.labels import Label, names
from sensorium.encoders.media import PICTURE_RATE_HZ, Intake, MediaFrame
from sensorium.encoders.picture_words import CELL_PX, REVISION, VISIBLE_CELLS

FPS = 1.0
MAX_FRAMES = 16
MAX_SCENES = 16
"""A camera may run for hours; what changes later is not told."""
MAX_LABELS = 2
NEWS = 0.3
"""What a frame shows is said if it is something else than before with at least this probability."""


@dataclass(slots=True)
class VideoClip:
    """State of one clip: the label said last, and how many scenes were said."""

    last: str = ""
    num_scenes: int = 0


class VideoWords:
    """Describes a video by its frames; fits `encoders.base.Encoder[VideoClip]`.

    Each frame is looked at when it comes: nothing after it could change what is said of it.
    """

    max_batch = PASS_PICTURES

    @classmethod
    def load(cls, sources: EncoderSources) -> "VideoWords | None":
        """Return the encoder of the model for the role "pictures", None if there is none.

        Raises RuntimeError, ValueError, OSError or KeyError for files that are no such model.
        """
        folder = sources.model("pictures")
        return None if folder is None else cls(folder)

    def __init__(self, model_dir: Path) -> None:
        self._classifier = load_classifier(model_dir)
        self.name = model_dir.name
        self.revision = f"{self.name} {REVISION}"
        self.intake = Intake(
            encoder=self.name,
            rate_hz=PICTURE_RATE_HZ,
            dtype="uint8",
            shape=(-1, -1, 3),
            cell_px=CELL_PX,
            max_cells=VISIBLE_CELLS,
            fps=FPS,
            max_frames=MAX_FRAMES,
        )

    def open(self, hints: ClipHints) -> VideoClip:
        """Return the state of a new clip; nothing is hinted at."""
        return VideoClip()

    def ready(self, state: VideoClip, num_ticks: int) -> bool:
        """Tell whether there is a frame to look at."""
        return num_ticks > 0

    def push(self, frames: list[tuple[MediaFrame, ...]], states: list[VideoClip]) -> list[Output]:
        """Say what is new in the frames of each clip; all are classified together."""
        everything = [pixels for run in frames for frame in run for pixels in frame.data]
        labels = iter(self._classifier.classify(everything, MAX_LABELS))
        outputs = []
        for run, state in zip(frames, states, strict=True):
            text = ""
            for frame in run:
                for _ in frame.data:
                    text += _scene(state, frame.start_s, next(labels))
            outputs.append(Output(text=text, encoder=self.name))
        return outputs

    def anticipate(self, states: list[VideoClip]) -> None:
        """Nothing is left to prepare."""

    def flush(self, states: list[VideoClip]) -> list[Output]:
        """End each clip; one that had no frame ends with a problem."""
        return [
            Output(text="]", encoder=self.name)
            if state.num_scenes
            else Output(problem="There was no frame to look at.", encoder=self.name)
            for state in states
        ]


def _scene(state: VideoClip, time_s: float, labels: list[Label]) -> str:
    """Return what is to be said of a frame, "" if that was said before or isn't worth it."""
    best = labels[0]
    is_news = best.name != state.last and best.probability >= NEWS
    if state.num_scenes == MAX_SCENES or (state.num_scenes and not is_news):
        return ""
    start = "; " if state.num_scenes else " [video: "
    state.last = best.name
    state.num_scenes += 1
    return f"{start}{time_s:.0f} s: {names(labels)}"
