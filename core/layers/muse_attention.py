"""Attention with normed queries and keys, and a gate on every channel of its result."""

import torch
from torch import Tensor

from sensorium import kernels
from sensorium.core.batch import Context
from sensorium.core.kv_cache import LayerKV
from sensorium.core.layers.attention import attend
from sensorium.core.layers.layer import Layer
from sensorium.core.layers.linear import Linear

Angles = tuple[Tensor, Tensor]
"""Cosines and signed sines of a step's positions, [T, 1, Dh] each, in float32."""


class GatedAttention(Layer):
    """Grouped-query attention whose queries, keys and heads' results are normed without a scale.

    The projections of queries, keys, values and gate are one matrix, in that order.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        q_factor: float,
        eps: float,
    ) -> None:
        """Leave the weights to be loaded; normed queries are multiplied by `q_factor`."""
        super().__init__()
        # In 4 bits the gate makes the model repeat itself.
        self.qkv_gate = Linear(width, 2 * (num_heads + num_kv_heads) * head_dim, least_bits=8)
        self.out = Linear(num_heads * head_dim, width)
        self._head_dim = head_dim
        self._num_qkv = (num_heads + 2 * num_kv_heads) * head_dim
        self._q_factor = q_factor
        self._eps = eps

    def forward(self, x: Tensor, angles: Angles | None, context: Context, kv: LayerKV) -> Tensor:
        """[T, D] → [T, D]; writes the step's keys and values to `kv` before it reads them.

        Without `angles` the layer doesn't see positions.
        """
        qkv_gate = self.qkv_gate(x)
        qkv = qkv_gate[:, : self._num_qkv].unflatten(-1, (-1, self._head_dim))  # [T, H + 2 Hk, Dh]
        cos, sin = angles or (None, None)
        q = kernels.norm_rope_and_store(
            qkv, cos, sin, self._q_factor, self._eps, context.slot_mapping, *kv
        )
        gate = qkv_gate[:, self._num_qkv :]  # [T, H · Dh]
        attended = attend(q, context, kv)
        return self.out(kernels.norm_heads_and_gate(attended, gate, self._head_dim, self._eps))


class Frequencies:
    """Rotary angles of the positions at hand, for contexts too long to tabulate.

    RoFormer (Su et al., 2021) with the pairs (i, i + Dh/2). A million positions would be 512 MiB of
    cosines and sines; a step's own take some 20 µs.
    """

    def __init__(self, head_dim: int, theta: float) -> None:
        """Prepare Dh / 2 frequencies; large angles need float64 to leave float32 results right."""
        # Computed here, never loaded: so on the CPU even while the modules are built without data.
        with torch.device("cpu"):
            exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        self._frequencies = theta**-exponents  # [Dh/2]

    def at(self, positions: Tensor) -> Angles:
        """Return cosines and signed sines for `positions` [T]."""
        self._frequencies = self._frequencies.to(positions.device)
        angles = positions[:, None, None] * self._frequencies  # [T, 1, Dh/2]
        cos, sin = angles.cos().float(), angles.sin().float()
        return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)
