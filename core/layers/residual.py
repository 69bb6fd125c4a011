"""The residual stream of layers that weigh it, channel by channel, against each branch."""

import torch
from torch import Tensor, nn

from sensorium import kernels
from sensorium.core.layers.layer import Layer
from sensorium.core.layers.norm_scale import NormScale

_SMALLEST_SQUARE = 1e-3


class GatedResidual(Layer):
    """residual ← α · residual + β · norm(branch), where β = σ(gate / temperature), α² = 1 - β².

    α² is at least 1e-3, so that no channel loses the stream. `gate` is [D], in float32 as are α and
    β, which are formed on their first use; a gate changed after that is not seen.
    """

    def __init__(self, width: int, temperature: float) -> None:
        """Leave the gate to be loaded."""
        super().__init__()
        self.gate = nn.Parameter(torch.empty(width, dtype=torch.float32), requires_grad=False)
        self.gate.keep_dtype = True  # type: ignore[attr-defined]  # read by core/weights.py
        self._temperature = temperature
        self._alpha_beta: tuple[Tensor, Tensor] | None = None

    def alpha_beta(self) -> tuple[Tensor, Tensor]:
        """Return how much of the stream stays and how much of a branch comes in, [D] each."""
        if self._alpha_beta is None:
            gate = self.gate / self._temperature
            beta = gate.sigmoid()
            # 1 - β² would cancel where β is near 1; 1 - β is σ(-gate).
            square = gate.neg().sigmoid() * (1 + beta)
            self._alpha_beta = square.clamp_min(_SMALLEST_SQUARE).sqrt(), beta
        return self._alpha_beta

    def forward(
        self,
        residual: Tensor,
        branch: Tensor,
        *,
        branch_scale: Tensor | None,
        branch_eps: float,
        following: NormScale,
    ) -> tuple[Tensor, Tensor]:
        """Take a branch in; return (the norm that the next branch begins with, the stream).

        All are [T, D]. The branch is multiplied by `branch_scale` [D], if any, and normed.
        """
        alpha, beta = self.alpha_beta()
        normed, total = kernels.mix_and_norm(
            residual,
            branch,
            branch_scale,
            branch_eps,
            alpha,
            beta,
            following.scale_in_float32,
            following.eps,
        )
        return normed, total
