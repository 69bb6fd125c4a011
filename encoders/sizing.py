"""To which grid of cells a picture is scaled before a vision tower takes it (pure, torch-free).

Whoever decodes a picture scales it to rows · cell_px by columns · cell_px pixels; the tower makes
one embedding of every cell.
"""

import itertools
import math

LOW_CELLS = 256
"""Cap of `detail: low`: what a picture needs to be recognised, not to be read."""


def grid(height: int, width: int, *, cell_px: int, max_cells: int) -> tuple[int, int]:
    """Return (rows, columns) for a picture of `height` × `width` pixels, at most `max_cells` cells.

    Of the grids around the picture's own size (scaled down where it exceeds the cap) it is the one
    whose rows / columns is nearest to height / width: Muse's rule, SPEC 4.5. Small pictures grow to
    whole cells. Where a side would be less than a cell and the other above the cap, one row or
    column of `max_cells` is the nearest grid. With `cell_px=1` a picture of at most `max_cells`
    pixels keeps its size. Raises ValueError for anything below 1.

    Example: 480 × 640 with cells of 28 px and room for 4096 is (17, 23), so 476 × 644 px.
    """
    if min(height, width, cell_px, max_cells) < 1:
        raise ValueError(
            "a picture, its cells and their number must be at least 1, got "
            f"{height} × {width} px in at most {max_cells} cells of {cell_px} px"
        )
    rows, columns = height / cell_px, width / cell_px
    ratio = columns / rows
    if rows * columns > max_cells:
        rows = (max_cells / ratio) ** 0.5
        columns = rows * ratio
    around = itertools.product(
        (math.floor(rows), math.ceil(rows)), (math.floor(columns), math.ceil(columns))
    )
    # Two grids can be equally near (1 × 1 and 2 × 2 for a square). The rule has no word on it, and
    # the reference takes what comes first in a set, so a set it is here.
    fitting = [(r, c) for r, c in set(around) if min(r, c) >= 1 and r * c <= max_cells]
    if not fitting:
        return (1, max_cells) if height < width else (max_cells, 1)
    return min(fitting, key=lambda shape: abs(shape[0] / shape[1] - height / width))


def cells_for(detail: str, max_cells: int) -> int:
    """Return the cap on cells for a wanted `detail` where the model's own is `max_cells`.

    "low" takes at most LOW_CELLS; "high" and "auto" take what the model allows: a picture gets no
    more cells than its size fills anyhow. Raises ValueError for another word.
    """
    match detail:
        case "low":
            return min(LOW_CELLS, max_cells)
        case "high" | "auto":
            return max_cells
    raise ValueError(f"detail must be low, high or auto, got {detail!r}")


def misfit(height: int, width: int, *, cell_px: int, max_cells: int) -> str | None:
    """Return what is wrong with a picture that should be sized already, None if nothing is."""
    if height % cell_px or width % cell_px or not height or not width:
        return f"A picture's sides must be multiples of {cell_px} px, got {height} × {width}."
    rows, columns = height // cell_px, width // cell_px
    if rows * columns > max_cells:
        return (
            f"A picture may have {max_cells} cells of {cell_px} × {cell_px} px, got {height} × "
            f"{width} px, which are {rows * columns}."
        )
    return None
