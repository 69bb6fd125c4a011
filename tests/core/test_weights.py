import json
from collections.abc import Collection
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_model import CONFIG, checkpoint, tiny_model
from torch import nn

from sensorium.core.checkpoint import INDEX_FILE, WEIGHTS_FILE
from sensorium.core.errors import BadCheckpoint, ModelNotFound
from sensorium.core.models.llama import Llama
from sensorium.core.weights import load_weights

CPU = torch.device("cpu")


def _load(folder: Path, others: Collection[str] = ()) -> Llama:
    with torch.device("meta"):
        model = Llama(CONFIG)
    names = model.weight_names()
    load_weights(model, names, folder, dtype=torch.float32, device=CPU, others=others)
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


def test_shards_fill_the_same_parameters(tmp_path: Path) -> None:
    original = tiny_model()
    tensors = checkpoint(original)
    _save_shards(tensors, tmp_path)
    loaded = _load(tmp_path)
    for name, parameter in original.named_parameters():
        assert torch.equal(loaded.get_parameter(name), parameter), name


def test_tensor_missing_from_all_shards_is_named(tmp_path: Path) -> None:
    tensors = checkpoint(tiny_model())
    del tensors["lm_head.weight"]
    _save_shards(tensors, tmp_path)
    with pytest.raises(BadCheckpoint, match=r"index\.json lacks 1 tensors: lm_head\.weight"):
        _load(tmp_path)


def test_wrong_width_of_a_single_tensor_is_named(tmp_path: Path) -> None:
    tensors = checkpoint(tiny_model()) | {"model.norm.weight": torch.ones(32, 1)}
    save_file(tensors, tmp_path / WEIGHTS_FILE)
    with pytest.raises(BadCheckpoint, match=r"model\.norm\.weight \[32, 1\]; .*needs \[32\]"):
        _load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_floating_tensors_are_converted(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in checkpoint(tiny_model()).items()}
    save_file(tensors, tmp_path / WEIGHTS_FILE)
    head = _load(tmp_path).get_parameter("head.weight")
    assert head.dtype == torch.float32
    assert torch.equal(head, tensors["lm_head.weight"].float())


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.uint8, torch.float8_e4m3fn])
def test_quantised_tensors_are_refused_by_name(tmp_path: Path, dtype: torch.dtype) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    tensors = checkpoint(tiny_model())
    save_file(
        tensors | {name: torch.zeros_like(tensors[name], dtype=dtype)}, tmp_path / WEIGHTS_FILE
    )
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(BadCheckpoint, match=rf"down_proj\.weight is {kind}; .*float64, float32"):
        _load(tmp_path)


def test_tensors_of_other_parts_must_be_there_and_stay_unread(tmp_path: Path) -> None:
    tensors = checkpoint(tiny_model()) | {"ears.weight": torch.ones(3, dtype=torch.int8)}
    save_file(tensors, tmp_path / WEIGHTS_FILE)
    _load(tmp_path, others=("ears.weight",))
    with pytest.raises(BadCheckpoint, match=r"lacks 1 tensors: eyes\.weight"):
        _load(tmp_path, others=("ears.weight", "eyes.weight"))


def test_parameter_marked_so_keeps_its_dtype(tmp_path: Path) -> None:
    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.empty(2, 3))
            self.router = nn.Parameter(torch.empty(4, 3, dtype=torch.float32))
            self.router.keep_dtype = True  # type: ignore[attr-defined]  # weights.py's mark

    weight = torch.full((4, 3), 1 + 2**-20)  # bfloat16 would round it to 1
    save_file({"m": torch.ones(2, 3), "r": weight}, tmp_path / WEIGHTS_FILE)
    with torch.device("meta"):
        module = Routed()
    names = {"matrix": ("m",), "router": ("r",)}
    for _ in range(2):  # the mark survives loading
        load_weights(module, names, tmp_path, dtype=torch.bfloat16, device=CPU)
        assert module.matrix.dtype == torch.bfloat16
        assert torch.equal(module.router, weight)


def test_loaded_weights_outlive_their_file(tmp_path: Path) -> None:
    original = tiny_model()
    save_file(checkpoint(original), tmp_path / WEIGHTS_FILE)
    loaded = _load(tmp_path)
    (tmp_path / WEIGHTS_FILE).write_bytes(bytes((tmp_path / WEIGHTS_FILE).stat().st_size))
    assert torch.equal(loaded.get_parameter("norm.weight"), original.get_parameter("norm.weight"))


def _save_shards(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    """Deal tensors out to three files, so that the parts of a parameter lie apart."""
    places = {name: f"shard-{i % 3}.safetensors" for i, name in enumerate(sorted(tensors))}
    for file in set(places.values()):
        save_file({n: t for n, t in tensors.items() if places[n] == file}, folder / file)
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": places}))
