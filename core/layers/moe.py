"""A mixture of experts in a narrower width, routed by sigmoid scores."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sensorium import kernels
from sensorium.core.layers.groups import quantized
from sensorium.core.layers.layer import Layer
from sensorium.core.layers.linear import Linear, Weights
from sensorium.core.layers.norm_scale import NormScale
from sensorium.core.layers.packed import Int4Groups, Int8Rows

Observer = Callable[[Tensor, Tensor], None]
"""Is told a router's logits [T, E] and the experts it chose [T, K]."""


class Router(Layer):
    """Chooses K of E experts for each token from the full width; all in float32.

    `weight` is [E, D]; `bias` [E] balances the load: it decides who is chosen, not with what
    weight.
    """

    def __init__(
        self, width: int, num_experts: int, num_chosen: int, *, multiplier: float, scaling: float
    ) -> None:
        """Leave weight and bias to be loaded; see `kernels.route` for the rest."""
        super().__init__()
        self.weight = _in_float32(num_experts, width)
        self.bias = _in_float32(num_experts)
        self._num_chosen = num_chosen
        self._multiplier = multiplier
        self._scaling = scaling

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[T, D] → (logits [T, E], expert ids [T, K], their weights [T, K])."""
        logits, expert_ids, weights = kernels.route(
            x, self.weight, self.bias, self._num_chosen, self._multiplier, self._scaling
        )
        return logits, expert_ids, weights


class ExpertLinear(Layer):
    """One matrix per expert, without bias; `weight` is [E, out, in] until it is packed."""

    def __init__(self, num_experts: int, in_features: int, out_features: int) -> None:
        """Leave the weight to be loaded."""
        super().__init__()
        self.weight = nn.Parameter(
            torch.empty(num_experts, out_features, in_features), requires_grad=False
        )
        self._by_input: Tensor | None = None
        self._packed: list[Callable[[Tensor], Tensor]] = []

    def pack(self, weights: Weights = "same") -> None:
        """Replace the loaded weight; `weights` as in `Linear.pack`.

        In few bits each expert's matrix is packed, else they stay together, [E, in, out]: one
        layout for products of single experts and of all at once.
        """
        matrices = self.weight.detach()
        half = matrices.dtype is torch.bfloat16
        if weights == "int8" and half and Int8Rows.takes(matrices.shape[2]):
            self._packed = [Int8Rows(matrix) for matrix in matrices]
        elif weights == "int4" and half and Int4Groups.takes(*matrices.shape[1:]):
            self._packed = [Int4Groups(quantized(matrix)) for matrix in matrices]
        else:
            self._by_input = matrices.transpose(1, 2).contiguous()
        del self.weight

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Multiply `counts[e]` rows with expert e's matrix, in order: [P, in] → [P, out]."""
        if not self._packed:
            by_input = self._by_input
            if by_input is None:
                by_input = self.weight.transpose(1, 2)
            return kernels.grouped_matmul(rows, by_input, counts)
        parts, begin = [], 0
        for matrix, count in zip(self._packed, counts.tolist(), strict=True):
            if count:
                parts.append(matrix(rows[begin : begin + count]))
                begin += count
        return torch.cat(parts)


class LatentMoE(Layer):
    """Experts of their own width M between two projections that all tokens share.

    Every expert's output is normed with a scale that they share before it is weighed.
    """

    def __init__(
        self,
        router: Router,
        *,
        width: int,
        num_experts: int,
        expert_width: int,
        inner_width: int,
        eps: float,
        post_eps: float,
    ) -> None:
        """Leave the weights to be loaded. `width` is D, `expert_width` M."""
        super().__init__()
        self.router = router
        # In 4 bits these projections make the model repeat itself.
        self.enter = Linear(width, expert_width, least_bits=8)
        self.enter_norm = NormScale(expert_width, eps, offset=1)
        self.gate_up = ExpertLinear(num_experts, expert_width, 2 * inner_width)
        self.down = ExpertLinear(num_experts, inner_width, expert_width)
        self.expert_norm = NormScale(expert_width, post_eps, offset=1)
        self.leave = Linear(expert_width, width, least_bits=8)
        self._num_experts = num_experts

    def forward(self, x: Tensor, observe: Observer | None = None) -> Tensor:
        """[T, D] → [T, D]; `observe` is told what the router chose."""
        logits, expert_ids, weights = self.router(x)
        if observe is not None:
            observe(logits, expert_ids)
        z = self.enter_norm(self.enter(x))  # [T, M]
        rows, pairs, counts = kernels.dispatch_experts(z, expert_ids, self._num_experts)
        inner = kernels.silu_mul(self.gate_up(rows, counts))  # [T · K, I]
        outputs = self.down(inner, counts)  # [T · K, M]
        norm = self.expert_norm
        return self.leave(kernels.combine_experts(outputs, pairs, weights, norm.scale, norm.eps))


def _in_float32(*shape: int) -> nn.Parameter:
    """Make a parameter that stays in float32 whatever the matrices' type is."""
    parameter = nn.Parameter(torch.empty(shape, dtype=torch.float32), requires_grad=False)
    parameter.keep_dtype = True  # type: ignore[attr-defined]  # read by core/weights.py
    return parameter
