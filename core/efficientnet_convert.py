"""Turns the published state dict of EfficientNet-lite0 into safetensors, once, after a pull.

The file is a pickle: read here with torch's reader of plain tensors, never where models are served.
Batch normalisation is folded into the convolution before it, so that serving is convolutions alone;
`encoders/efficientnet.py` names the layers. Who changes what is written here raises `CONVERSIONS`
in core/sources.py.
"""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from sensorium.core.errors import BadCheckpoint

MODEL_TYPE = "efficientnet-lite0"

_EPSILON = 1e-3  # of the batch normalisation the network was trained with
_LAYERS = {  # name in the file: our name, its normalisation
    "_conv_stem": ("stem", "_bn0"),
    "_expand_conv": ("expand", "_bn0"),
    "_depthwise_conv": ("depthwise", "_bn1"),
    "_project_conv": ("project", "_bn2"),
    "_conv_head": ("head", "_bn1"),
    "_fc": ("classifier", ""),
}
_WEIGHT = re.compile(r"(_blocks\.\d+\.)?(_[a-z_]+)\.weight")


def convert(source: Path, directory: Path, progress: Callable[[str, int, int], None]) -> None:
    """Write `config.json` and `model.safetensors` into `directory`; raises BadCheckpoint."""
    progress(f"converting {source.name}", 0, 0)
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise BadCheckpoint(f"{source.name} is no state dict of plain tensors: {reason}") from error
    tensors = fold(state)
    config = {"model_type": MODEL_TYPE}
    (directory / "config.json").write_text(json.dumps(config) + "\n", encoding="utf-8")
    path = directory / "model.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)  # the library makes it readable by its owner alone


def fold(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weight and bias of every layer under our names: `blocks.3.expand.weight`.

    Raises BadCheckpoint if a tensor is missing or none of ours.
    """
    left = {name: t for name, t in state.items() if not name.endswith("num_batches_tracked")}
    tensors: dict[str, torch.Tensor] = {}
    try:
        for name in list(left):
            layer = _WEIGHT.fullmatch(name)
            if layer is None or layer[2] not in _LAYERS:
                continue
            block, (ours, norm) = layer[1] or "", _LAYERS[layer[2]]
            weight = left.pop(name)
            if norm:
                weight, bias = _folded(weight, left, block + norm)
            else:
                bias = left.pop(f"{layer[2]}.bias")
            key = block.removeprefix("_") + ours
            tensors[f"{key}.weight"], tensors[f"{key}.bias"] = weight.contiguous(), bias
    except KeyError as error:
        raise BadCheckpoint(f"the state dict has no tensor {error}") from error
    if left:
        raise BadCheckpoint(f"unknown tensor {min(left)} in the state dict")
    return tensors


def _folded(
    weight: torch.Tensor, state: dict[str, torch.Tensor], norm: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Fold a normalisation into a convolution [out, in, k, k] without bias, in float64."""
    gain, bias, mean, variance = (
        state.pop(f"{norm}.{leaf}").double()
        for leaf in ("weight", "bias", "running_mean", "running_var")
    )
    scale = gain / (variance + _EPSILON).sqrt()
    folded = weight.double() * scale[:, None, None, None]
    return folded.float(), (bias - mean * scale).float()
