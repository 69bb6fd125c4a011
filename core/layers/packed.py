"""Weights in the layouts that torch multiplies fastest on a CPU: [T, in] → [T, out] each.

Measured on one matrix set of SmolLM2-135M, bench/README.md has the figures. The quantised forms
exist in bfloat16 alone: torch's kernels for other types are a hundred times slower.
"""

import torch
from torch import Tensor

from sensorium.core.layers.groups import GROUP_SIZE, Groups

_INNER_TILES = 2  # torch's argument of the packing; it changes nothing on a CPU


class Reordered:
    """The weight as it is, reordered once by oneDNN instead of at every call."""

    def __init__(self, weight: Tensor) -> None:
        """Reorder [out, in], float32 or bfloat16."""
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 1)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out]."""
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")

    @staticmethod
    def takes(dtype: torch.dtype) -> bool:
        """Tell whether oneDNN is there and knows the weight's type on this processor."""
        if not torch._C._has_mkldnn:
            return False
        if dtype is torch.bfloat16:
            return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        return dtype is torch.float32


class Int8Rows:
    """8-bit values with a scale per output: w ≈ scale · q, q from -127 to 127."""

    def __init__(self, weight: Tensor) -> None:
        """Round [out, in]."""
        weight = weight.float()
        self._scale = (weight.abs().amax(1) / 127).clamp_min(1e-30).bfloat16()  # as it is read
        steps = weight / self._scale.float()[:, None]
        self._q = steps.round().clamp(-127, 127).to(torch.int8)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out], bfloat16."""
        return torch.ops.aten._weight_int8pack_mm(x, self._q, self._scale)

    @staticmethod
    def takes(in_features: int) -> bool:
        """Tell whether torch multiplies such rows; of others it reads past the end."""
        return in_features % 16 == 0


class Int4Groups:
    """4-bit values in groups of 32: w = (q - 8) · scale + zero, scale and zero in bfloat16.

    8-bit groups become two such matrices beside each other, of their high and low halves, for an
    input that stands twice: 16 h + l = q. Nothing is rounded but scale and zero.
    """

    def __init__(self, groups: Groups) -> None:
        """Pack groups whose shape `takes` allows."""
        scale, zero = groups.scale, groups.minimum + 8 * groups.scale
        q = groups.q
        self._twice = groups.bits == 8
        if self._twice:
            q = torch.cat([q >> 4, q & 15], dim=1)
            zero = torch.cat([groups.minimum + 128 * scale, 8 * scale], dim=1)
            scale = torch.cat([16 * scale, scale], dim=1)
        self._q = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.int(), _INNER_TILES)
        self._scale_and_zero = torch.stack([scale.T, zero.T], dim=-1).bfloat16()  # [in/32, out, 2]

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out], bfloat16."""
        if self._twice:
            x = torch.cat([x, x], dim=-1)
        return torch._weight_int4pack_mm_for_cpu(x, self._q, GROUP_SIZE, self._scale_and_zero)

    @staticmethod
    def takes(out_features: int, in_features: int) -> bool:
        """Tell whether torch packs a matrix of this shape."""
        return out_features % 16 == 0 and in_features % GROUP_SIZE == 0
