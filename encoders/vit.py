"""Muse's vision tower: groups of frames in, rows for the decoder out (SPEC 4).

Every group is encoded by itself: a still picture, shown twice, or consecutive frames of a video.
So groups of any pictures and videos are packed into one pass over all their patches, in which
each attends within its own segments only: there is no mask, and none is paid for.
"""

import hashlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sensorium.encoders.base import EncoderSources
from sensorium.encoders.linear import Linear
from sensorium.encoders.vit_config import VitConfig
from sensorium.encoders.vit_layout import Grid, Layout, Run, cut, positions, runs

Group = NDArray[np.uint8]
"""Frames encoded together, [frames_per_group, H, W, 3]; sides are multiples of `cell_px`."""

MAX_PATCHES = 16_384
"""Patches in one pass, unless a single group has more: a picture of 4096 cells, or 16 groups of
video. Beyond some thousand patches a larger pass only takes more memory."""

_LAYER_EPS = 1e-5
_MLP_PATCHES = 512
"""Patches at once in the widest matrices: 18 MB in float32 at the release's 8960 channels. A Zen 4
core multiplies these at 103 GFLOP/s, and at 96 where 2048 patches no longer fit its cache."""

_SAMPLED = 1024
"""Values of each tensor that go into the fingerprint."""

Affine = tuple[Tensor, Tensor]
"""Weight and bias of a norm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    windowed: bool
    norm1: Affine
    qkv: Linear
    proj: Linear
    norm2: Affine
    fc1: Linear
    fc2: Linear


class VisionTower:
    """The tower with its projector. Holds no state between calls, so threads may share it.

    `fingerprint` changes with the configuration, the type and (a sample of) the weights.
    """

    def __init__(
        self, config: VitConfig, tensor: Callable[[str], Tensor], dtype: torch.dtype
    ) -> None:
        """Load the weights by the checkpoint's names. Raises ValueError for missing or odd ones."""
        weights = _Weights(tensor, dtype, seed=f"{config}{dtype}")
        width, projected = config.width, config.projected_width
        patch = config.frames_per_group * 3 * config.patch_px**2
        side = config.table_side
        tower = "model.vision_tower"
        self.config = config
        self._dtype = dtype
        self._embedding = weights.linear(f"{tower}.patch_embedder.patch_embedding", width, patch)
        self._table = weights.take(
            f"{tower}.patch_embedder.position_embedding_table.weight", side * side, width
        ).view(side, side, width)
        self._first_norm = weights.norm(f"{tower}.ln_pre", width)
        self._layers = [
            _layer(weights, f"{tower}.layers.{i}", config, windowed)
            for i, windowed in enumerate(config.windowed)
        ]
        self._last_norm = weights.norm(f"{tower}.ln_post", width)
        self._project = (
            weights.linear("model.vision_adapter.fc1", projected, width * config.merge**2),
            weights.linear("model.vision_adapter.fc2", projected, projected),
            weights.linear("model.vision_projection", config.decoder_width, projected),
        )
        self.fingerprint = weights.fingerprint()

    @torch.no_grad()
    def encode(self, groups: Sequence[Group]) -> list[Tensor]:
        """Return the rows of each group, [cells, D] in raster order."""
        rows: list[Tensor] = []
        for pack in self._packs(groups):
            rows += self._encode_pack(pack)
        return rows

    def _packs(self, groups: Sequence[Group]) -> Iterator[list[Group]]:
        pack: list[Group] = []
        num_patches = 0
        for group in groups:
            rows, columns = self._grid(group)
            if pack and num_patches + rows * columns > MAX_PATCHES:
                yield pack
                pack, num_patches = [], 0
            pack.append(group)
            num_patches += rows * columns
        if pack:
            yield pack

    def _grid(self, group: Group) -> Grid:
        _, height, width, _ = group.shape
        return height // self.config.patch_px, width // self.config.patch_px

    def _encode_pack(self, groups: list[Group]) -> list[Tensor]:
        """One pass over T patches."""
        grids = [self._grid(group) for group in groups]
        by_grid = {grid: Layout.of(grid, self.config) for grid in set(grids)}
        layouts = [by_grid[grid] for grid in grids]
        x = self._embed(groups, layouts)  # [T, C]
        cos = torch.cat([layout.cos for layout in layouts])[:, None, None]
        sin = torch.cat([layout.sin for layout in layouts])[:, None, None]  # [T, 1, 1, head / 2]
        windows = runs(length for layout in layouts for length in layout.windows)
        wholes = runs(len(layout.order) for layout in layouts)
        for layer in self._layers:
            self._attend(layer, x, cos, sin, windows if layer.windowed else wholes)
            for part in torch.split(x, _MLP_PATCHES):
                part += layer.fc2(F.gelu(layer.fc1(_norm(part, layer.norm2))))
        x = _norm(x, self._last_norm, self.config.eps)
        sizes = [len(layout.order) for layout in layouts]
        merged = [
            part[lay.merged] for part, lay in zip(torch.split(x, sizes), layouts, strict=True)
        ]
        rows = self._to_decoder(torch.cat(merged))
        return list(torch.split(rows, [size // self.config.merge**2 for size in sizes]))

    def _embed(self, groups: list[Group], layouts: list[Layout]) -> Tensor:
        """Groups → [T, C], window by window."""
        places = {lay.grid: positions(self._table, lay.grid)[lay.order] for lay in layouts}
        patches = [
            cut(group, self.config.patch_px)[layout.order]
            for group, layout in zip(groups, layouts, strict=True)
        ]
        x = self._embedding(torch.cat(patches))
        x += torch.cat([places[layout.grid] for layout in layouts]).to(self._dtype)
        return _norm(x, self._first_norm, self.config.eps)

    def _attend(
        self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor, segments: tuple[Run, ...]
    ) -> None:
        """Add the attention branch to `x` [T, C], in place; equal segments share a call."""
        heads = (self.config.num_heads, self.config.head_width)
        qkv = layer.qkv(_norm(x, layer.norm1)).view(len(x), 3, *heads)
        q, k = _turn(qkv[:, :2], cos, sin).unbind(1)  # [T, H, head]
        v = qkv[:, 2]
        attended = torch.empty_like(q)
        start = 0
        for num, length in segments:
            here = slice(start, start + num * length)
            queries, keys, values = (
                torch.unflatten(part[here], 0, (num, length)).transpose(1, 2) for part in (q, k, v)
            )
            mixed = F.scaled_dot_product_attention(queries, keys, values)  # [num, H, length, head]
            attended[here] = mixed.transpose(1, 2).flatten(0, 1)
            start = here.stop
        x += layer.proj(attended.flatten(1))

    def _to_decoder(self, merged: Tensor) -> Tensor:
        """[T, C], cell by cell → [T / merge², D], normed. A cell's channels stand side by side."""
        per_cell = self.config.merge**2
        cells = merged.view(-1, per_cell, merged.shape[-1]).transpose(1, 2).flatten(1)
        first, second, last = self._project
        rows = last(F.gelu(second(F.gelu(first(cells)))))
        return F.rms_norm(rows, (rows.shape[-1],), None, self.config.decoder_eps)


def _norm(x: Tensor, affine: Affine, eps: float = _LAYER_EPS) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), *affine, eps)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate channel i with channel i + head / 2, in float32: [T, 2, H, head]."""
    left, right = x.float().chunk(2, dim=-1)
    turned = torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
    return turned.to(x.dtype)


class _Weights:
    """Takes tensors out of a checkpoint, each checked, and remembers what they were."""

    def __init__(self, tensor: Callable[[str], Tensor], dtype: torch.dtype, *, seed: str) -> None:
        self._tensor = tensor
        self._dtype = dtype
        self._hash = hashlib.sha256(seed.encode())

    def take(self, name: str, *shape: int) -> Tensor:
        try:
            tensor = self._tensor(name)
        except KeyError:
            raise ValueError(f"the checkpoint has no {name}") from None
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must be {list(shape)}, got {list(tensor.shape)}")
        sample = tensor.flatten()[:: max(1, tensor.numel() // _SAMPLED)].float()
        self._hash.update(sample.numpy().tobytes())
        return tensor.to(self._dtype)

    def norm(self, name: str, width: int) -> Affine:
        return self.take(f"{name}.weight", width), self.take(f"{name}.bias", width)

    def linear(self, name: str, *shape: int) -> Linear:
        return Linear(self.take(f"{name}.weight", *shape))

    def biased(self, names: Sequence[str], num_out: int, num_in: int) -> Linear:
        """Join matrices of one shape, which multiply the same, into one."""
        matrices = [self.take(f"{name}.weight", num_out, num_in) for name in names]
        biases = [self.take(f"{name}.bias", num_out) for name in names]
        return Linear(torch.cat(matrices), torch.cat(biases))

    def fingerprint(self) -> str:
        return self._hash.hexdigest()[:16]


def _layer(weights: _Weights, name: str, config: VitConfig, windowed: bool) -> _Layer:
    width, inner = config.width, config.inner_width
    return _Layer(
        windowed=windowed,
        norm1=weights.norm(f"{name}.norm1", width),
        qkv=weights.biased([f"{name}.attn.{part}_proj" for part in "qkv"], width, width),
        proj=weights.biased([f"{name}.attn.proj"], width, width),
        norm2=weights.norm(f"{name}.norm2", width),
        fc1=weights.biased([f"{name}.mlp.fc1"], inner, width),
        fc2=weights.biased([f"{name}.mlp.fc2"], width, inner),
    )


_towers: "weakref.WeakValueDictionary[tuple[Any, ...], VisionTower]" = weakref.WeakValueDictionary()
"""Towers that some encoder still holds, by where they came from."""


def shared_tower(sources: EncoderSources) -> VisionTower:
    """Return the checkpoint's tower, the same for every encoder that is loaded from `sources`.

    Raises ValueError for a configuration or weights that are no such tower.
    """
    key: tuple[Path, Any, torch.dtype] = (sources.folder, sources.tensor, sources.dtype)
    tower = _towers.get(key)
    if tower is None:
        tower = VisionTower(VitConfig.from_json(sources.config), sources.tensor, sources.dtype)
        _towers[key] = tower
    return tower
