"""Parameter counts from config.json against checkpoints, and the release's published ones."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import pytest
import tiny_model
from muse_checkpoint import cached_tiny_muse
from safetensors import safe_open

from sensorium.core.errors import CoreError
from sensorium.core.models.muse_release import MUSE_SPARK_OPEN
from sensorium.core.plan_weights import model_size


def counts(config: Mapping[str, Any]) -> dict[str, int]:
    return {group.name: group.num_parameters for group in model_size(config).weights}


def test_release_has_its_published_parameters() -> None:
    weights = model_size(MUSE_SPARK_OPEN).weights
    assert sum(g.num_parameters for g in weights if not g.float32) == 821_906_490_368
    assert sum(g.num_parameters for g in weights if g.float32) == 130_039_296
    billions = {name: round(count / 1e9, 2) for name, count in counts(MUSE_SPARK_OPEN).items()}
    assert billions["experts"] == 798.86
    assert billions["embedding"] == billions["head"] == 1.66
    assert billions["vision encoder"] == 1.93  # tower 1.85, adapter and projection 0.08
    assert billions["audio encoder"] == 0.12


def test_release_has_sixteen_full_layers_the_last_among_them() -> None:
    windows = model_size(MUSE_SPARK_OPEN).shape.windows
    assert [i for i, window in enumerate(windows) if window is None] == list(range(1, 62, 4))
    assert set(windows) == {None, 2048}


KINDS = {
    "embed_tokens": "embedding",
    "lm_head": "head",
    "k_proj": "attention k, v",
    "v_proj": "attention k, v",
    "self_attn": "attention q, gate, out",
    "mlp.experts.gate_up": "experts",
    "mlp.experts.down": "experts",
    "expert_proj": "latent projections",
    "mlp.gate.": "router",
    "mlp.": "feed-forward, dense",
}


def kind(name: str) -> str:
    if "vision" in name or "audio" in name:
        return "vision encoder" if "vision" in name else "audio encoder"
    if "norm" in name or "residual_gate" in name:
        return "norms, residual gates"
    return next(kind for part, kind in KINDS.items() if part in name)


@pytest.mark.parametrize("dense_layer", [None, 3])
def test_every_tensor_of_a_checkpoint_is_counted_where_it_belongs(dense_layer: int | None) -> None:
    folder = cached_tiny_muse(dense_layer=dense_layer)
    found: dict[str, int] = {}
    with safe_open(folder / "model.safetensors", framework="np") as file:
        for name in file.keys():  # noqa: SIM118  # the library's file has no iterator
            shape = file.get_slice(name).get_shape()
            found[kind(name)] = found.get(kind(name), 0) + prod(shape)
    assert counts(_config(folder)) == found


def test_model_without_encoders_has_none() -> None:
    config = {**MUSE_SPARK_OPEN, "vision_config": None, "audio_config": None}
    assert set(counts(MUSE_SPARK_OPEN)) - set(counts(config)) == {"vision encoder", "audio encoder"}


@pytest.mark.parametrize("tied", [True, False])
def test_llama_counts_are_those_of_its_module(tied: bool) -> None:
    config = tiny_model.CONFIG | {"tie_word_embeddings": tied}
    total = sum(p.numel() for p in tiny_model.tiny_model().parameters())
    if tied:  # the module has a head of its own in either case
        total -= 97 * 32
    assert sum(counts(config).values()) == total


def test_unknown_family_lists_the_known_ones() -> None:
    with pytest.raises(CoreError, match=r"'dance'; known are: llama, muse_spark"):
        model_size({"model_type": "dance"})


def _config(folder: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
    return parsed
