"""What a forward pass keeps beside its result: hidden states and router choices, within a limit."""

from collections.abc import Collection

import torch
from torch import Tensor

from sensorium.core.errors import CoreError

MAX_BYTES = 1 << 30


class Capture:
    """Collects, batch by batch, what was asked for; `layers` are indices, counted from 0.

    Layer -1 is what the first layer is given. Everything is copied to the CPU in float32.
    """

    def __init__(
        self, *, layers: Collection[int] = (), routers: bool = False, max_bytes: int = MAX_BYTES
    ) -> None:
        """Ask for the residual stream after `layers`, and for what `routers` saw and chose."""
        self._layers = frozenset(layers)
        self._routers = routers
        self._room = max_bytes
        self._max_bytes = max_bytes
        self._kept: dict[str, list[Tensor]] = {}

    def residual(self, layer: int, x: Tensor) -> None:
        """Take the residual stream after a layer, [T, D]."""
        if layer in self._layers:
            self._keep(f"hidden.{layer}", x.float())

    def router(self, layer: int, logits: Tensor, expert_ids: Tensor) -> None:
        """Take a router's logits [T, E] and the experts it chose [T, k]."""
        if self._routers:
            self._keep(f"router.logits.{layer}", logits.float())
            self._keep(f"router.experts.{layer}", expert_ids)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that was kept, joined along positions: hidden.N, router.logits.N, …"""
        return {name: torch.cat(parts) for name, parts in self._kept.items()}

    def _keep(self, name: str, value: Tensor) -> None:
        self._room -= value.nbytes
        if self._room < 0:
            raise CoreError(
                f"what is captured exceeds {self._max_bytes} bytes at {name}; "
                "ask for fewer layers or positions"
            )
        self._kept.setdefault(name, []).append(value.cpu().clone())
