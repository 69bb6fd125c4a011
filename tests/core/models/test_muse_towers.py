"""The towers' tensors against a checkpoint that transformers wrote, and the release's sizes."""

import json
from math import prod
from typing import Any

import pytest
from muse_checkpoint import cached_tiny_muse
from safetensors import safe_open

from sensorium.core.errors import BadCheckpoint
from sensorium.core.models.muse_release import MUSE_SPARK_OPEN
from sensorium.core.models.muse_towers import audio_shapes, tower_shapes, vision_shapes

DECODER = ("model.language_model.", "lm_head.")


@pytest.fixture
def config() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((cached_tiny_muse() / "config.json").read_bytes())
    return parsed


def test_names_and_shapes_are_those_of_a_checkpoint(config: dict[str, Any]) -> None:
    with safe_open(cached_tiny_muse() / "model.safetensors", framework="np") as file:
        found = {
            name: tuple(file.get_slice(name).get_shape())
            for name in file.keys()  # noqa: SIM118  # the library's file has no iterator
            if not name.startswith(DECODER)
        }
    assert tower_shapes(config) == found


def test_released_towers_have_their_published_sizes() -> None:
    vision = vision_shapes(MUSE_SPARK_OPEN)
    # a layer: 4·1536² + 2·1536·8960 in matrices, 9·1536 + 8960 in norms and biases
    tower = 50 * (4 * 1536**2 + 2 * 1536 * 8960 + 9 * 1536 + 8960) + 1536 * (1176 + 1024 + 4)
    assert sum(prod(s) for name, s in vision.items() if "tower" in name) == tower == 1_852_639_744
    assert vision["model.vision_adapter.fc1.weight"] == (4096, 6144)
    audio = audio_shapes(MUSE_SPARK_OPEN)
    assert audio["model.audio_tower.layers.1.patch_embedder.proj.weight"] == (512, 1536)
    assert audio["model.audio_tower.layers.3.conv_blocks.1.mlp.fc1.weight"] == (8192, 2048)
    assert round(sum(map(prod, audio.values())) / 1e9, 3) == 0.118


@pytest.mark.parametrize("part", ["vision_config", "audio_config", "text_config"])
def test_missing_part_of_the_configuration_is_named(config: dict[str, Any], part: str) -> None:
    del config[part]
    with pytest.raises(BadCheckpoint, match=f"missing or not a number: '{part}'"):
        tower_shapes(config)


def test_stages_of_unequal_number_are_refused(config: dict[str, Any]) -> None:
    config["audio_config"]["depths"] = [2, 2]
    with pytest.raises(BadCheckpoint, match=r"got 4, 4 and 2"):
        tower_shapes(config)
