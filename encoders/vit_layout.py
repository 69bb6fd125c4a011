"""Where the patches of a picture are: cut, ordered for windows, turned by place, merged to cells.

Geometry alone, by grid. A grid is (rows, columns) in patches; raster order goes along the rows.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sensorium.encoders.vit_config import VitConfig

Grid = tuple[int, int]
Run = tuple[int, int]
"""`num` segments of `length` patches each, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One group of frames inside the tower, its P patches window by window.

    `order` [P]: raster index of each patch. `merged` [P]: the patches as cells take them, cell by
    cell in raster order and within one row by row. `windows`: patches of each window. `cos`, `sin`
    [P, head / 2], float32: how queries and keys are turned.
    """

    grid: Grid
    order: Tensor
    merged: Tensor
    windows: tuple[int, ...]
    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, grid: Grid, config: VitConfig) -> "Layout":
        """Lay out a grid whose sides are multiples of `config.merge`.

        Example: a 2 × 3 grid with windows of 2 × 2 is ordered 0 1 3 4 | 2 5.
        """
        rows, columns = grid
        side, merge = config.table_side, config.merge
        raster = torch.arange(rows * columns).view(rows, columns)
        windows = [
            raster[top : top + side, left : left + side].flatten()
            for top in range(0, rows, side)
            for left in range(0, columns, side)
        ]
        order = torch.cat(windows)
        cells = raster.view(rows // merge, merge, columns // merge, merge).transpose(1, 2)
        angles = _angles(grid, config)[order]
        return cls(
            grid=grid,
            order=order,
            merged=order.argsort()[cells.flatten()],
            windows=tuple(len(window) for window in windows),
            cos=angles.cos(),
            sin=angles.sin(),
        )


def _angles(grid: Grid, config: VitConfig) -> Tensor:
    """[rows · columns, head / 2] in raster order: by the column first, then by the row, from 1."""
    half = config.head_width // 2
    exponents = torch.arange(0, half, 2, dtype=torch.float32) / half
    frequencies = 1.0 / config.theta**exponents  # [head / 4]
    row, column = (torch.arange(1, size + 1.0)[:, None] * frequencies for size in grid)
    rows, columns = grid
    return torch.cat(
        (column.expand(rows, -1, -1), row[:, None].expand(-1, columns, -1)), dim=-1
    ).flatten(0, 1)


def cut(frames: NDArray[np.uint8], patch_px: int) -> Tensor:
    """[F, H, W, 3] → [patches, F · 3 · px · px], float32 in [-1, 1], patches in raster order.

    The values of a patch are ordered (frame, channel, y, x).
    """
    num, height, width, _ = frames.shape
    rows, columns = height // patch_px, width // patch_px
    pixels = torch.from_numpy(np.array(frames))  # a copy: what came by a message is read-only
    split = pixels.view(num, rows, patch_px, columns, patch_px, 3).permute(1, 3, 0, 5, 2, 4)
    return (split.reshape(rows * columns, -1).float() / 255 - 0.5) / 0.5


def positions(table: Tensor, grid: Grid) -> Tensor:
    """Sample the learned table [side, side, C] for a grid: [rows · columns, C], float32.

    A trap that the model was trained with: the raster index of a patch is decoded on the grid of
    *columns × rows*, which is the patch's own place in square pictures alone. The samples are
    bilinear between the table's centres; outside it is zero.
    """
    rows, columns = grid
    side = len(table)
    down, across = _taps(columns, side), _taps(rows, side)
    sampled = (down @ table.float().flatten(1)).view(columns, side, -1)
    return (across @ sampled).flatten(0, 1)


def _taps(num: int, side: int) -> Tensor:
    """[num, side]: weights of the table's entries for `num` places spread over them."""
    places = (torch.arange(num) + 0.5) * side / num - 0.5
    return (1 - (places[:, None] - torch.arange(side)).abs()).clamp(min=0)


def runs(lengths: Iterable[int]) -> tuple[Run, ...]:
    """Join equal neighbours: lengths 4, 4, 2, 4 are the runs (2, 4), (1, 2), (1, 4)."""
    return tuple((sum(1 for _ in equal), length) for length, equal in itertools.groupby(lengths))
