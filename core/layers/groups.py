"""Quantised weights: groups of 32 along the inputs share a scale and a minimum.

`groups.safetensors` lies beside a converted checkpoint and has three tensors for a matrix NAME of
the checkpoint: NAME.q (uint8 [out, in], or [out, in/2] with two 4-bit values a byte, the earlier in
the low half), NAME.scale and NAME.min (float16 [out, in/32]). A weight is scale · q + min.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sensorium.core.errors import BadCheckpoint

GROUPS_FILE = "groups.safetensors"
GROUP_SIZE = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Groups:
    """One matrix in groups: `q` is uint8 [out, in], below 2 ** `bits`; the others are float32."""

    bits: int
    q: Tensor
    scale: Tensor
    """[out, in/32]"""
    minimum: Tensor
    """[out, in/32]"""

    def dequantized(self) -> Tensor:
        """Return the weights as float32, [out, in]."""
        q = self.q.view(len(self.q), -1, GROUP_SIZE).float()
        return (self.scale[..., None] * q + self.minimum[..., None]).flatten(1)


def quantized(weight: Tensor) -> Groups:
    """Put a matrix [out, in] into groups of 4-bit values between their least and their largest."""
    grouped = weight.float().view(len(weight), -1, GROUP_SIZE)  # [out, in/32, 32]
    minimum = grouped.amin(-1)
    scale = (grouped.amax(-1) - minimum) / 15
    steps = (grouped - minimum[..., None]) / scale.clamp_min(1e-30)[..., None]
    q = steps.round().clamp(0, 15).to(torch.uint8).flatten(1)
    return Groups(bits=4, q=q, scale=scale, minimum=minimum)


def read_groups(folder: Path, names: Sequence[str]) -> Groups | None:
    """Read the matrices `names` of a checkpoint as one, concatenated along their outputs.

    None where the checkpoint has no groups of all of them, or of different widths in bits. Raises
    BadCheckpoint for a file that can't be read or whose shapes contradict each other.
    """
    path = folder / GROUPS_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            if not {f"{name}.q" for name in names} <= set(file.keys()):
                return None
            parts = [
                _groups(*(file.get_tensor(f"{name}.{leaf}") for leaf in ("q", "scale", "min")))
                for name in names
            ]
    except (SafetensorError, RuntimeError, ValueError) as error:
        raise BadCheckpoint(f"{path}: {', '.join(names)}: {error}") from error
    if len({part.bits for part in parts}) > 1:
        return None
    return Groups(
        bits=parts[0].bits,
        q=torch.cat([part.q for part in parts]),
        scale=torch.cat([part.scale for part in parts]),
        minimum=torch.cat([part.minimum for part in parts]),
    )


def _groups(q: Tensor, scale: Tensor, minimum: Tensor) -> Groups:
    """Unpack one matrix. Raises ValueError where the shapes don't fit together."""
    rows, num_groups = scale.shape
    bits = {num_groups * GROUP_SIZE: 8, num_groups * GROUP_SIZE // 2: 4}.get(q.shape[1])
    if bits is None or len(q) != rows or minimum.shape != scale.shape:
        raise ValueError(
            f"q {list(q.shape)}, scale {list(scale.shape)} and min {list(minimum.shape)} don't fit"
        )
    if bits == 4:
        q = torch.stack([q & 15, q >> 4], dim=-1).flatten(1)
    return Groups(bits=bits, q=q, scale=scale.float(), minimum=minimum.float())
