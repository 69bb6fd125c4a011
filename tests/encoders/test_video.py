"""Videos: a group at a time is the whole, whatever is pushed together; times and problems."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from muse_checkpoint import cached_tiny_muse, golden
from torch import Tensor
from vision_rig import noise, reference_rows, still, vision_sources

from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.image import MuseImage
from sensorium.encoders.media import MediaFrame, picture
from sensorium.encoders.video import MuseVideo, VideoClip

SOURCES = vision_sources()
_loaded = MuseVideo.load(SOURCES)
assert _loaded is not None
ENCODER = _loaded


def _film(num: int, rows: int, columns: int, seed: int = 0) -> list[MediaFrame]:
    """`num` frames at 2 fps."""
    return [picture(noise(rows, columns, 100 * seed + i), i / 2) for i in range(num)]


def _watch(frames: list[MediaFrame], sizes: list[int]) -> list[Output]:
    """Push runs of frames of these sizes, the last one the rest, and end the clip."""
    state = ENCODER.open(ClipHints())
    outputs = []
    for size in [*sizes, len(frames)]:
        outputs += ENCODER.push([tuple(frames[:size])], [state])
        frames = frames[size:]
    return outputs + ENCODER.flush([state])


def _values(outputs: list[Output]) -> Tensor:
    return torch.cat([rows.values for output in outputs for rows in output.rows])


def test_the_golden_video_of_three_frames() -> None:
    known = golden(cached_tiny_muse())
    pixels = known["in.video_u8"].numpy()
    outputs = _watch([picture(frame, i / 2) for i, frame in enumerate(pixels)], [])
    assert (_values(outputs) - known["video.features"]).abs().max() < 2e-5
    assert [len(output.rows) for output in outputs] == [1, 1], "an odd frame waits for the end"
    leads = [rows.lead for output in outputs for rows in output.rows]
    assert leads == ["Time: 0.00s", "Time: 1.00s"]


@pytest.mark.parametrize("shape", [(1, 6), (5, 2), (3, 3)])
def test_wide_tall_and_square_videos_are_transformers(shape: tuple[int, int]) -> None:
    frames = _film(4, *shape)
    pixels = np.concatenate([frame.data for frame in frames])
    wanted = torch.cat(reference_rows([pixels[:2], pixels[2:]]))
    torch.testing.assert_close(_values(_watch(frames, [])), wanted, atol=2e-5, rtol=0)


@settings(max_examples=15, deadline=None)
@given(num=st.integers(1, 9), sizes=st.lists(st.integers(0, 4), max_size=6))
def test_any_split_is_the_whole(num: int, sizes: list[int]) -> None:
    frames = _film(num, 2, 3)
    whole, parts = _watch(frames, []), _watch(frames, sizes)
    assert (_values(parts) - _values(whole)).abs().max() < 1e-5
    found = [(rows.start_s, rows.lead) for output in parts for rows in output.rows]
    assert found == [(float(i), f"Time: {i:.2f}s") for i in range(-(-num // 2))]


def test_clips_of_other_sizes_and_phases_share_a_call() -> None:
    films = [_film(4, 2, 2, 1), _film(3, 1, 4, 2), _film(6, 3, 1, 3)]
    alone = [_watch(film, []) for film in films]
    states = [ENCODER.open(ClipHints()) for _ in films]
    together: list[list[Output]] = [[] for _ in films]
    for i in range(0, 6, 3):
        outputs = ENCODER.push([tuple(film[i : i + 3]) for film in films], states)
        for clip, output in zip(together, outputs, strict=True):
            clip.append(output)
    for clip, output in zip(together, ENCODER.flush(states), strict=True):
        clip.append(output)
    for found, wanted in zip(together, alone, strict=True):
        assert (_values(found) - _values(wanted)).abs().max() < 1e-5


def test_a_group_comes_out_as_soon_as_it_is_complete() -> None:
    state = ENCODER.open(ClipHints())
    frames = _film(2, 1, 1)
    assert not ENCODER.ready(state, 1)
    assert ENCODER.ready(state, 2)
    assert not ENCODER.push([(frames[0],)], [state])[0].rows
    assert ENCODER.ready(state, 1)
    assert len(ENCODER.push([(frames[1],)], [state])[0].rows) == 1


def test_joined_frames_are_frames() -> None:
    """Two frames a tick apart may come as one."""
    frames = [noise(1, 2, seed) for seed in range(2)]
    one = MediaFrame(pts=picture(frames[0], 3.0).pts, rate_hz=1_000_000, data=np.stack(frames))
    (output, _) = _watch([one], [])
    wanted = reference_rows([np.stack(frames)])[0]
    torch.testing.assert_close(output.rows[0].values, wanted, atol=2e-5, rtol=0)
    assert output.rows[0].start_s == 3.0


def test_a_single_frame_is_a_still_picture() -> None:
    image = MuseImage.load(SOURCES)
    assert image is not None
    pixels = noise(2, 3, 4)
    (seen,) = image.push([(picture(pixels),)], [image.open(ClipHints())])
    found = _values(_watch([picture(pixels)], []))
    torch.testing.assert_close(found, seen.rows[0].values, atol=1e-5, rtol=0)
    torch.testing.assert_close(found, reference_rows([still(pixels)])[0], atol=2e-5, rtol=0)


def test_sizes_may_change_between_groups_but_not_inside() -> None:
    small, large = _film(2, 1, 1), _film(2, 2, 2)
    assert [len(rows.values) for rows in _watch(small + large, [])[0].rows] == [1, 4]
    outputs = _watch([small[0], large[1], *large], [1])
    assert "Frame 2 of this video is 56 × 56 px" in (outputs[1].problem or "")
    assert "encoded with 28 × 28" in (outputs[-1].problem or "")
    assert not any(output.rows for output in outputs)


def test_with_a_problem_there_are_no_rows() -> None:
    outputs = _watch([*_film(2, 1, 1), *_film(1, 5, 5)], [])
    assert "16 cells" in (outputs[0].problem or "")
    assert not any(output.rows for output in outputs)


@pytest.mark.parametrize(
    ("size", "complaint"),
    [((56, 29), "multiples of 28 px, got 56 × 29"), ((140, 112), "16 cells of 28 × 28 px")],
)
def test_frames_that_aren_t_sized_are_problems(size: tuple[int, int], complaint: str) -> None:
    bad, good = VideoClip(), VideoClip()
    frame = picture(np.zeros((*size, 3), np.uint8))
    outputs = ENCODER.push([(frame, frame), tuple(_film(2, 1, 1))], [bad, good])
    assert complaint in (outputs[0].problem or "")
    assert not outputs[0].rows
    assert outputs[1].rows
    assert outputs[1].problem is None


def test_a_video_without_frames_is_a_problem() -> None:
    assert ENCODER.flush([VideoClip()])[0].problem == "There is no frame in this video."


def test_what_it_takes_is_the_checkpoint_s() -> None:
    intake = ENCODER.intake
    assert (intake.cell_px, intake.max_cells, intake.max_frames) == (28, 16, 8)
    assert (intake.fps, intake.frames_per_group, intake.gives_rows) == (2.0, 2, True)


def test_pictures_and_video_hold_one_tower() -> None:
    image = MuseImage.load(SOURCES)
    assert image is not None
    assert image._tower is ENCODER._tower
