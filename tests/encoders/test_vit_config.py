"""What checkpoints say of their vision tower and its preprocessing, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from muse_checkpoint import cached_tiny_muse
from transformers import MuseSparkConfig
from vision_rig import vision_sources

from sensorium.encoders.vit_config import VisionSettings, VitConfig

CONFIG = vision_sources().config
TINY = VitConfig.from_json(CONFIG)


def _with(**changes: Any) -> dict[str, Any]:
    return {**CONFIG, "vision_config": {**CONFIG["vision_config"], **changes}}


def test_the_release_s_sizes() -> None:
    found = VitConfig.from_json(json.loads(json.dumps(MuseSparkConfig().to_dict())))
    assert (found.width, found.head_width, found.cell_px, found.table_side) == (1536, 96, 28, 32)
    assert (found.projected_width, found.decoder_width) == (4096, 8192)
    assert len(found.windowed) == 50
    assert sum(found.windowed) == 37


def test_without_a_list_every_fourth_layer_and_the_last_are_full() -> None:
    without = _with(layer_types=None, rope_parameters=None)
    assert VitConfig.from_json(without) == TINY
    assert TINY.windowed == (True, True, True, False, False)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_act": "silu"}, "hidden_act must be gelu, got 'silu'"),
        ({"pos_emb_width": 8}, "pos_emb_width must be 4, got 8"),
        ({"num_attention_heads": 3}, "modulo 4 · num_attention_heads must be 0, got 8"),
        ({"layer_types": ["full_attention"]}, "5 layers: 1"),
        ({"layer_types": ["linear"] * 5}, "linear"),
        ({"patch_size": None}, "missing or no number"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, "must be axial"),
    ],
)
def test_another_tower_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        VitConfig.from_json(_with(**changes))


def test_a_missing_size_is_named() -> None:
    vision = {k: v for k, v in CONFIG["vision_config"].items() if k != "merge_size"}
    with pytest.raises(ValueError, match="vision_config: missing or no number: 'merge_size'"):
        VitConfig.from_json({**CONFIG, "vision_config": vision})


def test_settings_are_the_checkpoint_s() -> None:
    assert VisionSettings.read(cached_tiny_muse(), TINY) == VisionSettings(
        image_cells=64,
        video_cells=16,
        max_frames=8,
        fps=2.0,
        time_format="Time: {timestamp:.2f}s",
    )


def test_older_checkpoints_have_a_file_for_each(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text('{"max_image_tokens": 100}')
    (tmp_path / "video_preprocessor_config.json").write_text('{"fps": 4, "num_frames": 10}')
    (tmp_path / "processor_config.json").write_text('{"processor_class": "MuseSparkProcessor"}')
    found = VisionSettings.read(tmp_path, TINY)
    assert (found.image_cells, found.fps, found.max_frames) == (100, 4, 10)
    nested = {"image_processor": {"max_image_tokens": 200}}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    found = VisionSettings.read(tmp_path, TINY)
    assert (found.image_cells, found.fps) == (200, 4)


def test_what_isn_t_said_is_transformers_default(tmp_path: Path) -> None:
    assert VisionSettings.read(tmp_path, TINY) == VisionSettings(
        image_cells=4096,
        video_cells=144,
        max_frames=96,
        fps=2.0,
        time_format="Time: {timestamp:.1f}s",
    )


@pytest.mark.parametrize(
    ("section", "values", "complaint"),
    [
        ("image_processor", {"image_mean": [0.4, 0.5, 0.5]}, "image_mean is"),
        ("image_processor", {"resample": 3}, "resample is 3, only 1"),
        ("video_processor", {"patch_size": 16}, "patch_size is 16, only 14"),
        ("video_processor", {"do_normalize": False}, "do_normalize is False"),
        ("image_processor", {"max_image_tokens": 0}, "image_cells must be a whole number ≥ 1"),
        ("video_processor", {"fps": 0}, "fps must be a positive number, got 0"),
        ("video_processor", {"frame_timestamp_format": "{timestamp:9999999f}"}, "short text"),
        ("video_processor", {"frame_timestamp_format": "{timestamp.real}"}, "short text"),
        ("video_processor", {"frame_timestamp_format": "now"}, "short text"),
    ],
)
def test_other_preprocessing_is_refused(
    tmp_path: Path, section: str, values: dict[str, Any], complaint: str
) -> None:
    (tmp_path / "processor_config.json").write_text(json.dumps({section: values}))
    with pytest.raises(ValueError, match=complaint):
        VisionSettings.read(tmp_path, TINY)


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "processor_config.json").write_text(text)
    with pytest.raises(ValueError, match=r"processor_config\.json"):
        VisionSettings.read(tmp_path, TINY)
