from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_model import CONFIG, checkpoint, tiny_model

from sensorium.core.errors import BadCheckpoint, ModelNotFound
from sensorium.core.models.llama import Llama
from sensorium.core.weights import WEIGHTS_FILE, load_weights

CPU = torch.device("cpu")


def _load(folder: Path) -> Llama:
    with torch.device("meta"):
        model = Llama(CONFIG)
    load_weights(model, model.weight_names(), folder, dtype=torch.float32, device=CPU)
    return model


def test_every_parameter_is_filled_from_its_tensors(tmp_path: Path) -> None:
    original = tiny_model()
    save_file(checkpoint(original), tmp_path / WEIGHTS_FILE)
    loaded = _load(tmp_path)
    for name, parameter in original.named_parameters():
        assert torch.equal(loaded.get_parameter(name), parameter), name


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"model\.safetensors is missing"):
        _load(tmp_path)


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = checkpoint(tiny_model())
    del tensors["model.layers.1.self_attn.k_proj.weight"]
    save_file(tensors, tmp_path / WEIGHTS_FILE)
    with pytest.raises(BadCheckpoint, match=r"lacks 1 .*layers\.1\.self_attn\.k_proj"):
        _load(tmp_path)


def test_unused_tensor_is_named(tmp_path: Path) -> None:
    save_file(checkpoint(tiny_model()) | {"extra.bias": torch.ones(2)}, tmp_path / WEIGHTS_FILE)
    with pytest.raises(BadCheckpoint, match=r"unknown 1 tensors: extra\.bias"):
        _load(tmp_path)


def test_wrong_shape_is_named(tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    save_file(checkpoint(tiny_model()) | {name: torch.ones(47, 32)}, tmp_path / WEIGHTS_FILE)
    with pytest.raises(BadCheckpoint, match=r"up_proj\.weight \[47, 32\]; .*needs \[96, 32\]"):
        _load(tmp_path)


@pytest.mark.parametrize("size", [0, 4, 1_000])
def test_damaged_file_is_refused(tmp_path: Path, size: int) -> None:
    save_file(checkpoint(tiny_model()), tmp_path / WEIGHTS_FILE)
    whole = (tmp_path / WEIGHTS_FILE).read_bytes()
    (tmp_path / WEIGHTS_FILE).write_bytes(whole[:size])
    with pytest.raises(BadCheckpoint, match="can't be read"):
        _load(tmp_path)
