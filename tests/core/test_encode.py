"""`sensorium encode`'s core on a tiny Muse: transformers' rows, whole or as if live, with times."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from media_files import noise
from muse_checkpoint import cached_tiny_muse
from muse_oracle import Clip, Offline, Picture, Video
from safetensors import safe_open
from safetensors.torch import load_file

from sensorium.core.config import ModelsConfig
from sensorium.core.encode import MediaEncoder, chunks, encode_to
from sensorium.core.errors import CoreError
from sensorium.encoders.media import MediaFrame, Pts, Samples, picture

RATE_HZ = 24_000
ROW_S = 0.08


@pytest.fixture(scope="module")
def encoder() -> MediaEncoder:
    return MediaEncoder(cached_tiny_muse(), ModelsConfig(), ("audio", "image", "video"), threads=1)


@pytest.fixture(scope="module")
def offline() -> Offline:
    return Offline(cached_tiny_muse())


def _sound(seconds: float, seed: int = 1) -> Samples:
    values = np.random.default_rng(seed).normal(0, 0.2, int(seconds * RATE_HZ))
    return values.astype(np.float32)


def _clip(samples: Samples) -> tuple[str, list[MediaFrame]]:
    return "audio", [MediaFrame(pts=Pts(0), rate_hz=RATE_HZ, data=samples)]


FRAMES = np.stack([noise(56, 84, seed=i) for i in range(5)])
TIMES_S = (0.0, 0.5, 1.1, 1.5, 2.0)
FILM = "video", [picture(*shown) for shown in zip(FRAMES, TIMES_S, strict=True)]
STILL = noise(84, 112, seed=9)


def test_rows_of_sound_are_transformers_with_their_times(
    encoder: MediaEncoder, offline: Offline
) -> None:
    samples = _sound(1.0)
    made = encoder.encode([_clip(samples)]).tensors
    clip = Clip(samples=samples)
    torch.testing.assert_close(made["rows"], offline.rows(clip), atol=2e-5, rtol=0)
    assert made["input_ids"].tolist() == offline.slots(clip)
    assert made["row_positions"].tolist() == list(range(1, 14))
    starts = torch.arange(13, dtype=torch.float64) * ROW_S
    torch.testing.assert_close(made["start_s"], starts)
    torch.testing.assert_close(made["end_s"], starts + ROW_S)


def test_clips_stand_one_after_the_other(encoder: MediaEncoder, offline: Offline) -> None:
    samples = _sound(0.3)
    encoded = encoder.encode([("image", [picture(STILL)]), FILM, _clip(samples)])
    media: list[Picture | Video | Clip] = [
        Picture(pixels=STILL),
        Video(frames=np.concatenate([FRAMES, FRAMES[-1:]]), times_s=(*TIMES_S, 2.0)),
        Clip(samples=samples),
    ]
    made = encoded.tensors
    slots = [offline.slots(content) for content in media]
    assert made["input_ids"].tolist() == [token_id for ids in slots for token_id in ids]
    rows = torch.cat([offline.rows(content) for content in media])
    torch.testing.assert_close(made["rows"], rows, atol=2e-5, rtol=0)
    ends = np.cumsum([len(ids) for ids in slots]).tolist()
    names = ("image", "video", "audio")
    assert list(encoded.spans) == list(zip(names, [0, *ends], ends, strict=False))
    times = [0.0] * 12 + [time_s for time_s in TIMES_S[::2] for _ in range(6)]
    assert made["start_s"].tolist()[: len(times)] == times


@pytest.mark.parametrize("chunk_s", [0.001, 0.05, 0.08, 0.3, 9.0])
def test_chunks_give_the_rows_of_the_whole(encoder: MediaEncoder, chunk_s: float) -> None:
    clips = [_clip(_sound(0.5)), FILM]
    whole, fed = encoder.encode(clips).tensors, encoder.encode(clips, chunk_s).tensors
    assert fed.keys() == whole.keys()
    torch.testing.assert_close(fed["rows"], whole["rows"], atol=1e-5, rtol=0)
    for name in ("input_ids", "row_positions", "start_s", "end_s"):
        assert torch.equal(fed[name], whole[name])


def test_chunks_are_of_whole_ticks_and_keep_their_time() -> None:
    frame = MediaFrame(pts=Pts(100), rate_hz=RATE_HZ, data=_sound(0.01))
    pieces = list(chunks([frame], 0.004))
    assert [(piece.pts, len(piece.data)) for piece in pieces] == [(100, 96), (196, 96), (292, 48)]
    assert len(list(chunks([frame], 1e-9))) == 240
    assert np.array_equal(np.concatenate([piece.data for piece in pieces]), frame.data)


def test_file_tells_what_it_holds(encoder: MediaEncoder, tmp_path: Path) -> None:
    encoded = encoder.encode([("image", [picture(STILL)])])
    target = tmp_path / "rows.safetensors"
    encode_to(target, encoded, {"model": "tiny"})
    assert {name: list(t.shape) for name, t in load_file(target).items()} == {
        "input_ids": [14],
        "rows": [12, 64],
        "row_positions": [12],
        "start_s": [12],
        "end_s": [12],
    }
    with safe_open(target, framework="pt") as file:
        metadata = file.metadata()
    assert metadata["model"] == "tiny"
    assert json.loads(metadata["spans"]) == [{"modality": "image", "start": 0, "end": 14}]


def test_file_that_cannot_be_written_is_named(encoder: MediaEncoder, tmp_path: Path) -> None:
    encoded = encoder.encode([_clip(_sound(0.1))])
    with pytest.raises(CoreError, match=r"none/rows\.safetensors can't be written"):
        encode_to(tmp_path / "none" / "rows.safetensors", encoded, {})


def test_problem_of_a_clip_is_raised(encoder: MediaEncoder) -> None:
    """A picture that nobody has sized, a video without frames."""
    with pytest.raises(CoreError, match="multiples of 28 px"):
        encoder.encode([("image", [picture(noise(50, 50))])])
    with pytest.raises(CoreError, match="no frame"):
        encoder.encode([("video", [])])


def test_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoreError, match=r"config\.json"):
        MediaEncoder(tmp_path, ModelsConfig(), ("audio",), threads=1)
