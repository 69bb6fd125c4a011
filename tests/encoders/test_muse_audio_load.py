"""What Muse's audio encoder is loaded from, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from muse_checkpoint import RATE_HZ, cached_tiny_muse
from muse_sound import HOP, frame, recording, sources, tiny_encoder
from torch import Tensor

from sensorium.core.checkpoint import Checkpoint
from sensorium.core.models.muse_release import MUSE_SPARK_OPEN
from sensorium.core.models.muse_towers import audio_shapes
from sensorium.core.sources import read_config
from sensorium.encoders.base import ClipHints
from sensorium.encoders.muse_audio import MuseAudio
from sensorium.encoders.muse_audio_tower import TowerConfig

FC1 = "model.audio_tower.layers.2.conv_blocks.1.mlp.fc1.weight"


def tensors(change: Callable[[str, Tensor], Tensor]) -> Callable[[str], Tensor]:
    """Return the tiny checkpoint's tensors, passed through `change`."""
    checkpoint = Checkpoint(cached_tiny_muse())
    return lambda name: change(name, checkpoint.tensor(name))


def loaded(**changed: Any) -> MuseAudio:
    encoder = MuseAudio.load(sources(**changed))
    assert encoder is not None
    return encoder


def test_intake_is_that_of_the_checkpoint() -> None:
    intake = tiny_encoder().intake
    assert (intake.rate_hz, intake.dtype, intake.shape) == (RATE_HZ, "float32", ())
    assert (intake.gives_rows, intake.ticks_per_row) == (True, HOP)


@pytest.mark.parametrize("change", [{"model_type": "muse_glimmer"}, {"audio_config": None}])
def test_other_checkpoints_have_none(change: dict[str, Any]) -> None:
    config = dict(read_config(cached_tiny_muse())) | change
    assert MuseAudio.load(sources(config=config)) is None


def test_state_has_the_released_size_and_begins_with_zeros() -> None:
    assert TowerConfig.read(MUSE_SPARK_OPEN).past_size == 46_080
    past = tiny_encoder().open(ClipHints()).past
    assert len(past) == 2 * 6 * (16 + 24 + 32 + 48)
    assert not past.any()


def test_every_tensor_of_the_tower_is_read_once() -> None:
    read: list[str] = []

    def noted(name: str, tensor: Tensor) -> Tensor:
        read.append(name)
        return tensor

    loaded(tensor=tensors(noted))
    assert sorted(read) == sorted(audio_shapes(read_config(cached_tiny_muse())))


def test_a_missing_tensor_is_named() -> None:
    checkpoint = Checkpoint(cached_tiny_muse())

    def tensor(name: str) -> Tensor:
        return checkpoint.tensor("absent" if name == FC1 else name)

    with pytest.raises(ValueError, match=rf"lacks {FC1}, needed as \[128, 32\]"):
        loaded(tensor=tensor)


def test_a_tensor_of_another_shape_is_named_with_both() -> None:
    cut = tensors(lambda name, tensor: tensor[1:] if name == FC1 else tensor)
    with pytest.raises(ValueError, match=rf"{FC1} is float32 \[127, 32\], needed .* \[128, 32\]"):
        loaded(tensor=cut)


def test_a_tensor_of_integers_is_refused() -> None:
    packed = tensors(lambda name, tensor: tensor.to(torch.uint8) if name == FC1 else tensor)
    with pytest.raises(ValueError, match=rf"{FC1} is uint8"):
        loaded(tensor=packed)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"patch_sizes": [16, 6, 5]}, "as many patch_sizes as hidden_sizes"),
        ({"depths": [2, 2, 0, 2]}, "above 0"),
        ({"conv_kernel_size": 0}, "above 0"),
        ({"hidden_sizes": None}, "NoneType"),
        ({"conv_kernel_size": "seven"}, "seven"),
        ({"hidden_act": "silu"}, "'silu', only 'gelu'"),
    ],
)
def test_a_configuration_that_cannot_be_run_is_refused(change: dict[str, Any], reason: str) -> None:
    config = dict(read_config(cached_tiny_muse()))
    config["audio_config"] |= change
    with pytest.raises(ValueError, match=reason):
        loaded(config=config)


def test_revision_is_that_of_all_weights_and_the_type() -> None:
    def nudged(name: str, tensor: Tensor) -> Tensor:
        if name == FC1:
            tensor = tensor.clone()
            tensor[77, 11] += 1e-4
        return tensor

    same, other = loaded(), loaded(tensor=tensors(nudged))
    assert same.revision == tiny_encoder().revision
    assert len({same.revision, other.revision, loaded(dtype=torch.bfloat16).revision}) == 3


def test_rows_in_bfloat16_are_near_those_in_float32() -> None:
    samples = recording("jfk_16k.wav")[: 30 * HOP]
    rows = []
    for encoder in (tiny_encoder(), loaded(dtype=torch.bfloat16)):
        (made,) = encoder.push([(frame(samples),)], [encoder.open(ClipHints())])[0].rows
        rows.append(made.values)
    assert rows[1].dtype is torch.bfloat16
    assert (rows[1].float() - rows[0]).norm() < 0.02 * rows[0].norm()


@pytest.mark.parametrize(
    ("name", "settings", "rate_hz"),
    [
        ("processor_config.json", {"feature_extractor": {"sampling_rate": 16_000}}, 16_000),
        ("preprocessor_config.json", {"sampling_rate": 48_000}, 48_000),
        ("processor_config.json", {}, 24_000),
        ("other.json", {}, 24_000),
    ],
)
def test_rate_is_what_the_preprocessing_says(
    tmp_path: Path, name: str, settings: dict[str, Any], rate_hz: int
) -> None:
    (tmp_path / name).write_text(json.dumps(settings))
    assert loaded(folder=tmp_path).intake.rate_hz == rate_hz


@pytest.mark.parametrize("text", ['{"sampling_rate": 0}', '{"sampling_rate": "fast"}', "[]", "{"])
def test_preprocessing_that_says_no_rate_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(ValueError, match=r"preprocessor_config\.json"):
        loaded(folder=tmp_path)
