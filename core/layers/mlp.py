"""The feed-forward half of a dense layer."""

from torch import Tensor

from sensorium import kernels
from sensorium.core.layers.layer import Layer
from sensorium.core.layers.linear import Linear


class GatedMLP(Layer):
    """SwiGLU (Shazeer, 2020); the gate and up projections are one matrix, gate first."""

    def __init__(self, width: int, inner_width: int) -> None:
        """Leave the weights to be loaded."""
        super().__init__()
        self.gate_up = Linear(width, 2 * inner_width)
        self.down = Linear(inner_width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[T, D] → [T, D]."""
        return self.down(kernels.silu_mul(self.gate_up(x)))
