"""Grids of cells: the reference's own where it has one, never above the cap, sizes kept at 1 px."""

import ast
import importlib.util
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sensorium.encoders.sizing import cells_for, grid, misfit

SIDES = st.integers(1, 20_000)
CAPS = st.integers(1, 5000)


def _reference() -> Callable[[int, int, int, int], tuple[int, int]]:
    """Return transformers' function; its module wants torchvision, the function doesn't."""
    package = importlib.util.find_spec("transformers")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0]) / "models" / "muse_glimmer"
    tree = ast.parse((folder / "image_processing_muse_glimmer.py").read_text())
    function = next(
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "smart_resize"
    )
    names: dict[str, Any] = {"itertools": itertools, "math": math}
    exec(compile(ast.Module([function], []), "smart_resize", "exec"), names)
    found: Callable[[int, int, int, int], tuple[int, int]] = names["smart_resize"]
    return found


REFERENCE = _reference()


@pytest.mark.parametrize(
    ("height", "width", "resized", "cells"),
    [
        (480, 640, (476, 644), 391),
        (1080, 1920, (1092, 1932), 2691),
        (4000, 3000, (2044, 1540), 4015),
        (100, 3000, (112, 3024), 432),
        (20, 20, (28, 28), 1),
    ],
)
def test_known_sizes(height: int, width: int, resized: tuple[int, int], cells: int) -> None:
    rows, columns = grid(height, width, cell_px=28, max_cells=4096)
    assert (28 * rows, 28 * columns) == resized
    assert rows * columns == cells


@given(height=SIDES, width=SIDES, max_cells=CAPS)
@example(height=30, width=30, max_cells=4096)  # 1 × 1 and 2 × 2 are equally near
@example(height=1500, width=1500, max_cells=3000)
def test_grid_is_the_reference_s_wherever_that_keeps_the_cap(
    height: int, width: int, max_cells: int
) -> None:
    wanted = tuple(side // 28 for side in REFERENCE(height, width, 28, max_cells))
    found = grid(height, width, cell_px=28, max_cells=max_cells)
    if math.prod(wanted) <= max_cells:
        assert found == wanted
    assert 1 <= math.prod(found) <= max_cells


def test_extreme_shapes_take_the_nearest_grid_under_the_cap() -> None:
    assert grid(1, 1_000_000, cell_px=28, max_cells=4096) == (1, 4096)
    assert grid(200_000, 20, cell_px=28, max_cells=256) == (256, 1)


@given(st.integers(1, 300), st.integers(1, 300))
def test_a_picture_within_the_cap_keeps_its_size_at_one_pixel_a_cell(
    height: int, width: int
) -> None:
    assert grid(height, width, cell_px=1, max_cells=height * width) == (height, width)


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_no_pixels_are_no_picture(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=r"at least 1, got -?\d × \d px"):
        grid(*size, cell_px=28, max_cells=4096)


def test_low_detail_lowers_the_cap_and_nothing_raises_it() -> None:
    assert cells_for("low", 4096) == 256
    assert cells_for("low", 64) == 64
    assert cells_for("high", 4096) == cells_for("auto", 4096) == 4096
    with pytest.raises(ValueError, match="low, high or auto, got 'medium'"):
        cells_for("medium", 4096)


@pytest.mark.parametrize(
    ("size", "complaint"),
    [
        ((28, 56), None),
        ((56, 56), None),
        ((28, 57), "multiples of 28 px, got 28 × 57"),
        ((0, 28), "multiples of 28 px, got 0 × 28"),
        ((28, 140), "may have 4 cells of 28 × 28 px, got 28 × 140 px, which are 5"),
    ],
)
def test_pictures_that_were_not_sized_are_described(
    size: tuple[int, int], complaint: str | None
) -> None:
    found = misfit(*size, cell_px=28, max_cells=4)
    assert (complaint in found) if complaint and found else (found == complaint)
