"""Rotary position embedding: the angles; the rotation itself is `kernels.rope_and_store`."""

import torch
from torch import Tensor


class Rotary:
    """Cosines and sines of every position, in float32, looked up once per step.

    RoFormer (Su et al., 2021) with the pairs (i, i + Dh/2).
    """

    def __init__(self, head_dim: int, max_positions: int, theta: float) -> None:
        """Tabulate; large angles need float64 to leave float32 results right."""
        # Computed here, never loaded: so on the CPU even while the modules are built without data.
        with torch.device("cpu"):
            exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
            positions = torch.arange(max_positions, dtype=torch.float64)
        angles = torch.outer(positions, theta**-exponents)
        cos, sin = angles.cos().float(), angles.sin().float()  # [positions, Dh/2]
        self._cos = torch.cat([cos, cos], dim=-1)
        self._sin = torch.cat([-sin, sin], dim=-1)

    def at(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines for `positions` [T], each [T, 1, Dh]."""
        self._cos, self._sin = (t.to(positions.device, dtype) for t in (self._cos, self._sin))
        return self._cos[positions, None], self._sin[positions, None]
