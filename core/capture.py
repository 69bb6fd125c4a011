"""What a forward pass keeps beside its result: hidden states and router choices, within a limit."""

from collections.abc import Collection

import torch
from torch import Tensor

from sensorium.core.errors import CoreError

EMBEDS = -1
"""Stands for the layer before the first one: its output is what the first layer is given."""

MAX_BYTES = 1 << 30


class Capture:
    """Collects, batch by batch, what was asked for; `layers` are indices, counted from 0.

    Everything is copied to the CPU. The batches must be pieces of one sequence, in order, for the
    joined tensors to mean anything.
    """

    def __init__(
        self, *, layers: Collection[int] = (), routers: bool = False, max_bytes: int = MAX_BYTES
    ) -> None:
        """Ask for the residual stream after `layers`, and for what `routers` saw and chose."""
        self.num_bytes = 0
        """Of all that is kept so far."""
        self._layers = frozenset(layers)
        self._routers = routers
        self._max_bytes = max_bytes
        self._kept: dict[str, list[Tensor]] = {}

    def residual(self, layer: int, x: Tensor) -> None:
        """Take the residual stream after a layer, [T, D]. Raises CoreError past the limit."""
        if layer in self._layers:
            self._keep(f"hidden.{'embeds' if layer == EMBEDS else layer}", x, torch.float32)

    def router(self, layer: int, logits: Tensor, expert_ids: Tensor) -> None:
        """Take a router's logits [T, E] and the experts it chose [T, k]. CoreError as above."""
        if self._routers:
            self._keep(f"router.logits.{layer}", logits, torch.float32)
            self._keep(f"router.experts.{layer}", expert_ids, torch.int64)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that was kept, joined along positions.

        `hidden.embeds` and `hidden.N` are [T, D] and `router.logits.N` [T, E], in float32;
        `router.experts.N` is [T, k], in int64.
        """
        return {name: torch.cat(parts) for name, parts in self._kept.items()}

    def _keep(self, name: str, value: Tensor, dtype: torch.dtype) -> None:
        self.num_bytes += value.numel() * dtype.itemsize
        if self.num_bytes > self._max_bytes:
            raise CoreError(
                f"what is captured exceeds {self._max_bytes:,} bytes at {name}; "
                "ask for fewer layers or positions"
            )
        # A copy even where nothing changes: the decoder may go on writing into its tensors.
        self._kept.setdefault(name, []).append(value.to("cpu", dtype, copy=True))
