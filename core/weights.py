"""Safetensors → modules, memory-mapped and strict: every tensor used, every parameter filled."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sensorium.core.checkpoint import Checkpoint
from sensorium.core.errors import BadCheckpoint

WEIGHT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""What a checkpoint's tensors may be; anything else is quantised and means nothing by itself."""

_MOST_SHOWN = 5


def load_weights(
    module: nn.Module,
    names: Mapping[str, tuple[str, ...]],
    folder: Path,
    *,
    dtype: torch.dtype,
    device: torch.device,
    others: Collection[str] = (),
) -> None:
    """Fill the parameters of `module` (built on the meta device) from the checkpoint in `folder`.

    `names` maps each parameter to the tensors that make it, concatenated along the first axis.
    `others` are tensors of further parts of the model: they must be there and stay unread. Floating
    tensors are converted to `dtype`, or to the parameter's own dtype where the module has set
    `keep_dtype = True` on it. Parameters are filled in their order, one at a time: memory holds
    the model and no more than the tensor at hand.

    Raises ModelNotFound for missing files and BadCheckpoint for anything that doesn't fit.
    """
    checkpoint = Checkpoint(folder)
    _check_names(module, names, others, checkpoint)
    for name, parameter in list(module.named_parameters()):
        keeps_dtype = getattr(parameter, "keep_dtype", False)
        filled = nn.Parameter(
            _fill(
                parameter.shape,
                names[name],
                checkpoint,
                dtype=parameter.dtype if keeps_dtype else dtype,
                device=device,
            ),
            requires_grad=False,
        )
        if keeps_dtype:
            filled.keep_dtype = True  # type: ignore[attr-defined]  # our own mark
        _put(module, name, filled)


def _check_names(
    module: nn.Module,
    names: Mapping[str, tuple[str, ...]],
    others: Collection[str],
    checkpoint: Checkpoint,
) -> None:
    """Compare what the model wants with what the checkpoint holds."""
    unmapped = {name for name, _ in module.named_parameters()} ^ set(names)
    assert not unmapped, f"weight_names and parameters differ: {sorted(unmapped)}"
    wanted = {part for parts in names.values() for part in parts} | set(others)
    found = set(checkpoint.names)
    for problem, tensors in (("lacks", wanted - found), ("has unknown", found - wanted)):
        if tensors:
            shown = ", ".join(sorted(tensors)[:_MOST_SHOWN])
            raise BadCheckpoint(f"{checkpoint.path} {problem} {len(tensors)} tensors: {shown}")


def _fill(
    shape: torch.Size,
    names: tuple[str, ...],
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Copy the parts of a parameter out of their files, converting as they come."""
    parts = [checkpoint.tensor(name) for name in names]  # mapped, not read
    _check_dtypes(names, parts, checkpoint)
    _check_shapes(shape, names, parts, checkpoint)
    whole = torch.empty(shape, dtype=dtype, device=device)
    if len(parts) == 1:
        return whole.copy_(parts[0])
    places = torch.split(whole, [len(part) for part in parts])
    for rows, part in zip(places, parts, strict=True):
        rows.copy_(part)
    return whole


def _check_dtypes(names: tuple[str, ...], parts: list[Tensor], checkpoint: Checkpoint) -> None:
    """Refuse integers and other quantised types."""
    for name, part in zip(names, parts, strict=True):
        if part.dtype not in WEIGHT_DTYPES:
            wanted = ", ".join(str(dtype).removeprefix("torch.") for dtype in WEIGHT_DTYPES)
            raise BadCheckpoint(
                f"{checkpoint.file_of(name)}: {name} is {str(part.dtype).removeprefix('torch.')}; "
                f"weights must be one of {wanted} (quantised checkpoints of this kind aren't read)"
            )


def _check_shapes(
    shape: torch.Size, names: tuple[str, ...], parts: list[Tensor], checkpoint: Checkpoint
) -> None:
    """Refuse tensors that don't add up to the parameter."""
    fits = parts[0].shape == shape
    if len(parts) > 1:
        fits = all(part.shape[1:] == shape[1:] and part.dim() == len(shape) for part in parts)
        fits = fits and sum(len(part) for part in parts) == shape[0]
    if not fits:
        found = ", ".join(
            f"{name} {list(part.shape)}" for name, part in zip(names, parts, strict=True)
        )
        raise BadCheckpoint(
            f"{checkpoint.file_of(names[0])}: {found}; the model needs {list(shape)} in all"
        )


def _put(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Set a parameter by its dotted name."""
    path, _, leaf = name.rpartition(".")
    owner: Any = module.get_submodule(path)
    setattr(owner, leaf, parameter)
