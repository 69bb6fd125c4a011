"""Pictures: rows of transformers, one frame a clip, problems named."""

from pathlib import Path

import numpy as np
import pytest
import torch
from vision_rig import noise, reference_rows, still, vision_sources

from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.image import MuseImage
from sensorium.encoders.media import MediaError, MediaFrame, Pixels, picture

SOURCES = vision_sources()
_loaded = MuseImage.load(SOURCES)
assert _loaded is not None
ENCODER = _loaded


def _see(*pictures: Pixels) -> list[Output]:
    """Push one picture to a clip each, in one call, and end them."""
    states = [ENCODER.open(ClipHints()) for _ in pictures]
    pushed = ENCODER.push([(picture(pixels, 1.5),) for pixels in pictures], states)
    assert not any(output.rows for output in ENCODER.flush(states))
    return pushed


def test_pictures_of_many_clips_are_transformers_rows() -> None:
    pictures = [noise(2, 5, 1), noise(4, 2, 2), noise(3, 3, 3)]
    wanted = reference_rows([still(pixels) for pixels in pictures])
    for output, rows in zip(_see(*pictures), wanted, strict=True):
        (found,) = output.rows
        torch.testing.assert_close(found.values, rows, atol=2e-5, rtol=0)
        assert (found.start_s, found.step_s, found.lead) == (1.5, 0.0, "")
        assert (output.problem, output.encoder) == (None, "muse-image")


def test_a_picture_is_encoded_when_it_arrives() -> None:
    state = ENCODER.open(ClipHints())
    assert not ENCODER.ready(state, 0)
    assert ENCODER.ready(state, 1)


def test_what_it_takes_is_the_checkpoint_s() -> None:
    intake = ENCODER.intake
    assert (intake.cell_px, intake.max_cells, intake.max_frames) == (28, 64, 1)
    intake.check(picture(noise(1, 1, 0)))
    with pytest.raises(MediaError, match="takes uint8"):
        intake.check(picture(noise(1, 1, 0)[:, :, :1]))


@pytest.mark.parametrize(
    ("pixels", "complaint"),
    [
        (np.zeros((28, 30, 3), np.uint8), "must be multiples of 28 px, got 28 × 30"),
        (np.zeros((0, 28, 3), np.uint8), "must be multiples of 28 px, got 0 × 28"),
        (noise(5, 13, 0), "64 cells of 28 × 28 px, got 140 × 364 px, which are 65"),
    ],
)
def test_pictures_of_other_sizes_are_problems_of_their_own_clip(
    pixels: Pixels, complaint: str
) -> None:
    good, bad = _see(noise(1, 2, 1), pixels)
    assert complaint in (bad.problem or "")
    assert not bad.rows
    assert good.problem is None
    assert len(good.rows[0].values) == 2


def test_a_second_picture_in_a_clip_is_a_problem() -> None:
    state = ENCODER.open(ClipHints())
    frames = [picture(noise(1, 1, seed), seed) for seed in range(2)]
    (output,) = ENCODER.push([tuple(frames)], [state])
    assert not output.rows
    assert output.problem == "A picture is one frame, got 2 in one clip."
    joined = MediaFrame(
        pts=frames[0].pts, rate_hz=frames[0].rate_hz, data=np.concatenate([f.data for f in frames])
    )
    state = ENCODER.open(ClipHints())
    (output,) = ENCODER.push([(joined,)], [state])
    assert output.problem == "A picture is one frame, got 2 in one clip."
    assert ENCODER.flush([state])[0].problem == output.problem


def test_a_clip_without_a_picture_is_a_problem() -> None:
    (output,) = ENCODER.flush([ENCODER.open(ClipHints())])
    assert output.problem == "There is no picture."


def test_without_a_vision_tower_there_is_no_encoder(tmp_path: Path) -> None:
    assert (
        MuseImage.load(vision_sources(tmp_path, config={"model_type": "llama"}, tensor=_no)) is None
    )


def _no(name: str) -> torch.Tensor:
    raise AssertionError(f"{name} isn't needed")


def test_the_revision_is_of_weights_and_preprocessing(tmp_path: Path) -> None:
    again = MuseImage.load(vision_sources())
    assert again is not None
    assert again.revision == ENCODER.revision
    (tmp_path / "processor_config.json").write_text('{"image_processor": {"max_image_tokens": 9}}')
    other = MuseImage.load(vision_sources(tmp_path, config=SOURCES.config, tensor=SOURCES.tensor))
    assert other is not None
    assert other.intake.max_cells == 9
    assert other.revision != ENCODER.revision
