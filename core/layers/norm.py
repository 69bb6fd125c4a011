"""Root-mean-square norms, alone or fused with the addition before them."""

import torch
from torch import Tensor, nn

from sensorium import kernels
from sensorium.core.layers.layer import Layer


class RMSNorm(Layer):
    """Norm with a learned scale per channel; `weight` is [D]."""

    def __init__(self, width: int, eps: float) -> None:
        """Leave the weight to be loaded."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[T, D] → [T, D]."""
        return kernels.rms_norm(x, self.weight, self.eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return (norm(x + residual), x + residual), each [T, D]."""
        normed, total = kernels.add_rms_norm(x, residual, self.weight, self.eps)
        return normed, total
