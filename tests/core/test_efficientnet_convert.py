"""From the published pickle to safetensors: folded, complete, and nothing in it executed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from sensorium.core.efficientnet_convert import convert, fold
from sensorium.core.errors import BadCheckpoint

State = dict[str, Tensor]


@pytest.fixture
def norm() -> nn.BatchNorm2d:
    """Return a normalisation that has seen something."""
    generator = torch.Generator().manual_seed(1)
    norm = nn.BatchNorm2d(6, eps=1e-3).eval()
    for tensor in (norm.weight, norm.bias, norm.running_mean):
        assert tensor is not None
        tensor.data.normal_(generator=generator)
    assert norm.running_var is not None
    norm.running_var.uniform_(0.01, 4.0, generator=generator)
    return norm


@pytest.fixture
def conv() -> nn.Conv2d:
    """Return a convolution in front of it."""
    torch.manual_seed(2)
    return nn.Conv2d(3, 6, 3, bias=False)


@pytest.fixture
def state(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> State:
    """Return a network of one layer and a classifier, named as in the published file."""
    named: State = {"_blocks.2._expand_conv.weight": conv.weight.detach()}
    named |= {f"_blocks.2._bn0.{leaf}": value for leaf, value in norm.state_dict().items()}
    return named | {"_fc.weight": torch.ones(4, 6), "_fc.bias": torch.zeros(4)}


def test_folded_layer_computes_what_both_did(
    conv: nn.Conv2d, norm: nn.BatchNorm2d, state: State
) -> None:
    folded = fold(state)
    x = torch.randn(2, 3, 9, 9)
    weight, bias = folded["blocks.2.expand.weight"], folded["blocks.2.expand.bias"]
    torch.testing.assert_close(nn.functional.conv2d(x, weight, bias), norm(conv(x)))


def test_layers_get_the_names_that_are_served(state: State) -> None:
    served = {"blocks.2.expand.weight", "blocks.2.expand.bias"}
    assert set(fold(state)) == served | {"classifier.weight", "classifier.bias"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("_blocks.2._bn0.bias"), r"no tensor '_blocks\.2\._bn0\.bias'"),
        (lambda state: state.pop("_fc.bias"), r"no tensor '_fc\.bias'"),
        (lambda state: state.update({"_se.weight": torch.ones(1)}), r"unknown tensor _se\.weight"),
    ],
)
def test_another_network_is_refused(
    state: State, change: Callable[[State], object], message: str
) -> None:
    change(state)
    with pytest.raises(BadCheckpoint, match=message):
        fold(state)


def test_files_say_what_they_hold(tmp_path: Path, state: State) -> None:
    torch.save(state, tmp_path / "net.pth")
    convert(tmp_path / "net.pth", tmp_path, lambda what, done, total: None)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {"model_type": "efficientnet-lite0"}
    written = load_file(tmp_path / "model.safetensors")
    assert torch.equal(written["blocks.2.expand.weight"], fold(state)["blocks.2.expand.weight"])


class _Intruder:
    """A pickle of it makes a directory when it is read."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self._target),)


def test_a_pickle_with_code_in_it_is_refused_and_not_run(tmp_path: Path) -> None:
    target = tmp_path / "made-by-the-pickle"
    torch.save({"_fc.weight": _Intruder(target)}, tmp_path / "net.pth")
    with pytest.raises(BadCheckpoint, match=r"net\.pth is no state dict of plain tensors"):
        convert(tmp_path / "net.pth", tmp_path, lambda what, done, total: None)
    assert not target.exists()


@pytest.mark.parametrize("content", [b"", b"not a pickle", b"PK\x03\x04 cut"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "net.pth").write_bytes(content)
    with pytest.raises(BadCheckpoint, match=r"net\.pth"):
        convert(tmp_path / "net.pth", tmp_path, lambda what, done, total: None)
