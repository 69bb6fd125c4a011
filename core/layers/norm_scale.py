"""The scale of a norm that is fused with its neighbours: `kernels.mix_and_norm` and others."""

import torch
from torch import Tensor, nn

from sensorium import kernels
from sensorium.core.layers.layer import Layer


class NormScale(Layer):
    """A norm's learned scale per channel and its eps; `weight` is [D].

    The scale is weight + `offset`: offset 1 where a checkpoint stores a scale as its distance from
    one ("centred"). It is formed in the weight's type, as in training, on its first use; a weight
    changed after that is not seen.
    """

    def __init__(self, width: int, eps: float, *, offset: float) -> None:
        """Leave the weight to be loaded."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width), requires_grad=False)
        self.eps = eps
        self._offset = offset
        self._scale: Tensor | None = None
        self._scale_in_float32: Tensor | None = None

    @property
    def scale(self) -> Tensor:
        """[D], in the weight's type."""
        if self._scale is None:
            self._scale = self.weight + self._offset
        return self._scale

    @property
    def scale_in_float32(self) -> Tensor:
        """[D]; the same values as `scale`."""
        if self._scale_in_float32 is None:
            self._scale_in_float32 = self.scale.float()
        return self._scale_in_float32

    def forward(self, x: Tensor) -> Tensor:
        """Norm alone, [T, D] → [T, D] in the type of `x`."""
        scale = self.scale if x.dtype == self.weight.dtype else self.scale_in_float32
        return kernels.rms_norm(x, scale, self.eps)
