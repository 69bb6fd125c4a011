"""Safetensors → modules, memory-mapped and strict: every tensor used, every parameter filled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from sensorium.core.errors import BadCheckpoint, ModelNotFound

WEIGHTS_FILE = "model.safetensors"


def load_weights(
    module: nn.Module,
    names: Mapping[str, tuple[str, ...]],
    folder: Path,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Fill the parameters of `module` (built on the meta device) from `folder`/model.safetensors.

    `names` maps each parameter to the tensors that make it, concatenated along the first axis.
    Raises ModelNotFound without the file and BadCheckpoint for anything that doesn't fit.
    """
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise ModelNotFound(f"{path} is missing")
    try:
        with safe_open(path, framework="pt") as file:
            _check_names(module, names, set(file.keys()), path)
            for name, parameter in list(module.named_parameters()):
                parts = [file.get_tensor(part) for part in names[name]]
                _check_shapes(parameter, names[name], parts, path)
                whole = torch.cat(parts) if len(parts) > 1 else parts[0]
                _put(module, name, whole.to(device, dtype))
    except SafetensorError as error:
        raise BadCheckpoint(f"{path} can't be read: {error}") from error


def _check_names(
    module: nn.Module, names: Mapping[str, tuple[str, ...]], found: set[str], path: Path
) -> None:
    """Compare what the module wants with what the file holds."""
    unmapped = {name for name, _ in module.named_parameters()} ^ set(names)
    assert not unmapped, f"weight_names and parameters differ: {sorted(unmapped)}"
    wanted = {part for parts in names.values() for part in parts}
    for problem, tensors in (("lacks", wanted - found), ("has unknown", found - wanted)):
        if tensors:
            shown = ", ".join(sorted(tensors)[:5])
            raise BadCheckpoint(f"{path} {problem} {len(tensors)} tensors: {shown}")


def _check_shapes(
    parameter: nn.Parameter, names: tuple[str, ...], parts: list[torch.Tensor], path: Path
) -> None:
    """Refuse tensors that don't add up to the parameter."""
    shapes = [list(part.shape) for part in parts]
    rows = sum(shape[0] for shape in shapes if shape)
    tails = [shape[1:] for shape in shapes]
    wanted = list(parameter.shape)
    if rows != wanted[0] or any(tail != wanted[1:] for tail in tails):
        found = ", ".join(f"{name} {shape}" for name, shape in zip(names, shapes, strict=True))
        raise BadCheckpoint(f"{path}: {found}; the model needs {wanted} in all")


def _put(module: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Set a parameter by its dotted name."""
    path, _, leaf = name.rpartition(".")
    owner: Any = module.get_submodule(path)
    setattr(owner, leaf, nn.Parameter(tensor, requires_grad=False))
