"""Matrix products without bias, the weight in the layout that the device multiplies fastest."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensorium.core.layers.groups import Groups, quantized
from sensorium.core.layers.layer import Layer
from sensorium.core.layers.packed import Int4Groups, Int8Rows, Reordered

Weights = Literal["auto", "same", "int8", "int4"]
"""How `ModelsConfig.weights` wants matrices kept."""

FEW_ROWS = 4
"""Up to so many rows 4-bit groups are the fastest form: they wait for memory alone. All matrices of
SmolLM2-135M on a Zen 4 core, int4 and bfloat16: 128 and 54 positions/s by one, 296 and 237 by four,
297 and 378 by eight, 269 and 512 by sixteen. 8-bit groups are two such matrices: for half as many.
"""


class Linear(Layer):
    """y = x Wᵀ; `weight` is [out, in] until it is packed."""

    def __init__(self, in_features: int, out_features: int, *, least_bits: int = 4) -> None:
        """Leave the weight to be loaded; it is never rounded to fewer than `least_bits` bits."""
        super().__init__()
        self._least_bits = least_bits
        self.weight = nn.Parameter(torch.empty(out_features, in_features), requires_grad=False)
        self._few: Callable[[Tensor], Tensor] | None = None
        self._many: Callable[[Tensor], Tensor] | None = None
        self._num_few = FEW_ROWS

    def pack(
        self,
        weights: Weights = "same",
        groups: Groups | None = None,
    ) -> None:
        """Replace the loaded weight by packed ones; it can't be read or moved afterwards.

        "same" keeps its type; "int8" rounds each row, "int4" groups of 32, or takes `groups`, which
        are the same matrix as the checkpoint has it. "auto" is "same", and with `groups` these for
        few rows beside it. What the processor or torch has no kernel for stays as it is.
        """
        if weights == "int4" and self._least_bits > 4:
            weights, groups = "int8", None
        weight = self.weight.detach()
        fits = weight.dtype is torch.bfloat16 and Int4Groups.takes(*weight.shape)
        if weights == "int8" and weight.dtype is torch.bfloat16 and Int8Rows.takes(weight.shape[1]):
            self._few = self._many = Int8Rows(weight)
        elif weights == "int4" and fits:
            self._few = self._many = Int4Groups(groups or quantized(weight))
        elif Reordered.takes(weight.dtype):
            self._few = self._many = Reordered(weight)
            if weights == "auto" and groups is not None and fits:
                self._few = Int4Groups(groups)
                self._num_few = FEW_ROWS * 4 // groups.bits
        else:
            return
        del self.weight

    def forward(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out]."""
        if self._few is None or self._many is None:
            return F.linear(x, self.weight)
        return self._few(x) if x.shape[0] <= self._num_few else self._many(x)
