"""The vision tower against transformers, and packs against their parts."""

import gc
import json
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from muse_checkpoint import cached_tiny_muse, golden
from torch import Tensor
from vision_rig import noise, reference_rows, still, vision_sources

from sensorium.core.checkpoint import Checkpoint
from sensorium.encoders import vit
from sensorium.encoders.vit import VisionTower, shared_tower
from sensorium.encoders.vit_config import VitConfig

PARITY = 2e-5
SOURCES = vision_sources()
TOWER = shared_tower(SOURCES)


def _gap(found: list[Tensor], wanted: list[Tensor]) -> float:
    assert [rows.shape for rows in found] == [rows.shape for rows in wanted]
    return max((left - right).abs().max().item() for left, right in zip(found, wanted, strict=True))


def test_pictures_and_video_are_the_goldens() -> None:
    known = golden(cached_tiny_muse())
    pictures = [known[f"in.image_u8.{i}"].numpy() for i in range(2)]
    rows = torch.cat(TOWER.encode([still(pixels) for pixels in pictures]))
    assert (rows - known["vision.features"]).abs().max() < PARITY
    frames = known["in.video_u8"].numpy()
    rows = torch.cat(TOWER.encode([frames[:2], frames[[2, 2]]]))
    assert (rows - known["video.features"]).abs().max() < PARITY


@pytest.mark.parametrize("grid", [(1, 1), (2, 2), (3, 3), (1, 7), (6, 1), (3, 5), (5, 2)])
def test_every_shape_is_transformers_(grid: tuple[int, int]) -> None:
    groups = [np.stack([noise(*grid, 1), noise(*grid, 2)])]
    assert _gap(TOWER.encode(groups), reference_rows(groups)) < PARITY


@settings(max_examples=20, deadline=None)
@given(grids=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=6))
def test_a_group_is_the_same_in_any_pack(grids: list[tuple[int, int]]) -> None:
    groups = [still(noise(*grid, seed)) for seed, grid in enumerate(grids)]
    alone = [rows for group in groups for rows in TOWER.encode([group])]
    assert _gap(TOWER.encode(groups), alone) < 1e-5
    assert _gap(TOWER.encode(groups[::-1]), alone[::-1]) < 1e-5


def test_passes_are_bounded_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [still(noise(1 + seed % 3, 2, seed)) for seed in range(7)]
    whole = TOWER.encode(groups)
    monkeypatch.setattr(vit, "MAX_PATCHES", 24)
    monkeypatch.setattr(vit, "_MLP_PATCHES", 5)
    sizes = [
        sum(rows * columns for rows, columns in map(TOWER._grid, pack))
        for pack in TOWER._packs(groups)
    ]
    assert len(sizes) > 2
    assert max(sizes) <= 24
    assert _gap(TOWER.encode(groups), whole) < 1e-5


def test_nothing_in_is_nothing_out() -> None:
    assert TOWER.encode([]) == []


def test_bfloat16_stays_near() -> None:
    tower = shared_tower(vision_sources(dtype=torch.bfloat16))
    groups = [still(noise(2, 3, 0))]
    rows = tower.encode(groups)[0]
    assert rows.dtype is torch.bfloat16
    assert (rows.float() - TOWER.encode(groups)[0]).abs().mean() < 0.05


def test_a_tower_is_shared_as_long_as_someone_holds_it() -> None:
    sources = vision_sources()
    first = shared_tower(sources)
    assert shared_tower(sources) is first
    assert shared_tower(vision_sources(dtype=torch.bfloat16)) is not first
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None


def test_the_fingerprint_is_of_weights_configuration_and_type() -> None:
    def changed(name: str) -> Tensor:
        tensor = Checkpoint(cached_tiny_muse()).tensor(name)
        return tensor * 2 if name.endswith("layers.3.mlp.fc2.weight") else tensor

    config = json.loads(json.dumps(SOURCES.config))
    config["vision_config"]["layer_norm_eps"] = 2e-5
    others = [
        vision_sources(tensor=changed),
        vision_sources(config=config),
        vision_sources(dtype=torch.bfloat16),
    ]
    prints = [shared_tower(sources).fingerprint for sources in others]
    assert len({TOWER.fingerprint, *prints}) == 4
    assert shared_tower(vision_sources()).fingerprint == TOWER.fingerprint


def test_weights_that_are_missing_or_odd_are_named() -> None:
    def without(name: str) -> Tensor:
        if name == "model.vision_tower.ln_post.bias":
            raise KeyError(name)
        return SOURCES.tensor(name)

    def cropped(name: str) -> Tensor:
        tensor = SOURCES.tensor(name)
        return tensor[:-1] if name == "model.vision_projection.weight" else tensor

    config = VitConfig.from_json(SOURCES.config)
    with pytest.raises(ValueError, match=r"has no model\.vision_tower\.ln_post\.bias"):
        VisionTower(config, without, torch.float32)
    with pytest.raises(ValueError, match=r"vision_projection\.weight must be \[64, 56\], got \[63"):
        VisionTower(config, cropped, torch.float32)
