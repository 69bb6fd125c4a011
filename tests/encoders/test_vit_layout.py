"""Geometry of patches: order, places, the table of positions and its trap."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from vision_rig import vision_sources

from sensorium.encoders.vit_config import VitConfig
from sensorium.encoders.vit_layout import Layout, cut, positions, runs

CONFIG = VitConfig.from_json(vision_sources().config)


def test_patches_go_window_by_window_and_cells_find_theirs() -> None:
    """2 × 6 patches with windows of 4 × 4: the second window is two patches wide."""
    layout = Layout.of((2, 6), CONFIG)
    assert layout.order.tolist() == [0, 1, 2, 3, 6, 7, 8, 9, 4, 5, 10, 11]
    assert layout.windows == (8, 4)
    assert layout.order[layout.merged].tolist() == [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]


def test_columns_turn_the_first_half_and_rows_the_second() -> None:
    """Head width 16: four frequencies for each, counted from 1."""
    layout = Layout.of((2, 4), CONFIG)
    frequencies = [10_000 ** (-2 * j / 8) for j in range(4)]
    for place, raster in enumerate(layout.order.tolist()):
        row, column = divmod(raster, 4)
        angles = [(column + 1) * f for f in frequencies] + [(row + 1) * f for f in frequencies]
        assert layout.cos[place].tolist() == pytest.approx(np.cos(angles), abs=1e-6)
        assert layout.sin[place].tolist() == pytest.approx(np.sin(angles), abs=1e-6)


def test_values_of_a_patch_are_frame_channel_y_x() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (2, 28, 56, 3), dtype=np.uint8)
    patches = cut(frames, 14)
    assert patches.shape == (8, 2 * 3 * 14 * 14)
    patch = patches[1 * 4 + 2].view(2, 3, 14, 14)  # second row, third column
    assert patch[1, 2, 5, 9].item() == pytest.approx(frames[1, 14 + 5, 28 + 9, 2] / 127.5 - 1)


def _sampled(table: Tensor, rows: int, columns: int) -> Tensor:
    """Sample at the centres of a grid as torch does, raster order."""
    y, x = torch.meshgrid(
        (torch.arange(rows) * 2 + 1) / rows - 1,
        (torch.arange(columns) * 2 + 1) / columns - 1,
        indexing="ij",
    )
    found = F.grid_sample(
        table.permute(2, 0, 1)[None], torch.stack((x, y), -1)[None], align_corners=False
    )
    return found[0].flatten(1).T


@pytest.mark.parametrize("grid", [(4, 4), (2, 10), (12, 2), (6, 8), (34, 2)])
def test_positions_are_sampled_on_the_grid_of_columns_by_rows(grid: tuple[int, int]) -> None:
    table = torch.randn(4, 4, 7, generator=torch.Generator().manual_seed(0))
    rows, columns = grid
    found = positions(table, grid)
    torch.testing.assert_close(found, _sampled(table, columns, rows), atol=1e-5, rtol=0)
    ordinary = (found - _sampled(table, rows, columns)).abs().max().item()
    assert (ordinary < 1e-5) == (rows == columns)


def test_equal_neighbours_are_one_run() -> None:
    assert runs([4, 4, 2, 4]) == ((2, 4), (1, 2), (1, 4))
    assert runs([]) == ()
