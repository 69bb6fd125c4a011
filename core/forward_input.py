"""The input file of `sensorium forward`: read, and checked against the model it is for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sensorium.core.errors import CoreError
from sensorium.core.models.base import DecoderShape
from sensorium.core.span import Content

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
NAMES = ("input_ids", "rows", "row_positions")


class BadInput(CoreError):
    """What can't be computed; the message names the thing, what was found, and the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardInput:
    """One sequence: `token_ids` [n], with `rows` [m, D] instead at `row_positions` [m].

    Example: ids [5, 0, 0, 7] with rows [r, s] at [1, 2] are given to the model as 5, r, s, 7.
    """

    token_ids: Tensor
    rows: Tensor
    row_positions: Tensor

    def contents(self) -> Iterator[Content]:
        """Yield runs of ids and runs of rows in order, as a media span takes them."""
        is_slot = torch.zeros(len(self.token_ids), dtype=torch.bool)
        is_slot[self.row_positions] = True
        ids, rows = self.token_ids, self.rows
        for slot, run in groupby(is_slot.tolist()):
            count = len(list(run))
            if slot:
                yield rows[:count]
                rows = rows[count:]
            else:
                yield tuple(ids[:count].tolist())
            ids = ids[count:]


def read_input(path: Path, shape: DecoderShape, placeholders: Mapping[str, int]) -> ForwardInput:
    """Read a safetensors file: `input_ids`, and `rows` with `row_positions` if there are any.

    `placeholders` are the ids that stand for media, by their name in config.json: none may be left
    without a row. Other tensors in the file are ignored. Raises BadInput.
    """
    tensors = _read(path)
    ids = _token_ids(tensors, shape)
    rows, positions = _rows(tensors, shape, len(ids))
    _check_ids(ids, positions, shape, placeholders)
    return ForwardInput(token_ids=ids, rows=rows, row_positions=positions)


def _read(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            found = set(file.keys())
            tensors = {name: file.get_tensor(name) for name in NAMES if name in found}
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path} can't be read as safetensors: {error}") from error
    if "input_ids" not in tensors:
        held = ", ".join(sorted(found)[:5]) or "nothing"
        raise BadInput(f"{path} holds no input_ids, but {held}")
    if ("rows" in tensors) != ("row_positions" in tensors):
        there, missing = sorted(("rows", "row_positions"), key=lambda name: name not in tensors)
        raise BadInput(f"{path} has {there} without {missing}; each row needs a position")
    return tensors


def _token_ids(tensors: Mapping[str, Tensor], shape: DecoderShape) -> Tensor:
    """Return the ids, [n]; [1, n] is taken as well."""
    ids = tensors["input_ids"]
    _check_type("input_ids", ids, INTEGERS)
    if ids.ndim == 2 and len(ids) == 1:
        ids = ids[0]
    if ids.ndim != 1 or not len(ids):
        found = list(ids.shape)
        raise BadInput(f"input_ids must be [n] or [1, n] with n from 1 on, got {found}")
    if len(ids) > shape.max_positions:
        raise BadInput(
            f"input_ids has {len(ids)} positions; the model's limit is {shape.max_positions}"
        )
    return ids.long()


def _rows(
    tensors: Mapping[str, Tensor], shape: DecoderShape, num_positions: int
) -> tuple[Tensor, Tensor]:
    """Return rows and their positions, both empty if the file has none."""
    if "rows" not in tensors:
        return torch.empty(0, shape.width), torch.empty(0, dtype=torch.long)
    rows, positions = tensors["rows"], tensors["row_positions"]
    _check_type("rows", rows, FLOATS)
    _check_type("row_positions", positions, INTEGERS)
    if rows.ndim != 2 or rows.shape[1] != shape.width:
        raise BadInput(f"rows must be [m, {shape.width}], got {list(rows.shape)}")
    if positions.ndim != 1 or len(positions) != len(rows):
        raise BadInput(
            f"row_positions must be [{len(rows)}], one per row, got {list(positions.shape)}"
        )
    positions = positions.long()
    if (outside := (positions < 0) | (positions >= num_positions)).any():
        found = int(positions[outside][0])
        raise BadInput(f"row_positions must be from 0 to {num_positions - 1}, got {found}")
    if (falling := positions.diff() <= 0).any():
        at = int(falling.nonzero()[0])
        before, after = positions[at : at + 2].tolist()
        raise BadInput(f"row_positions must rise, got {after} after {before}")
    if not (finite := rows.isfinite().all(dim=1)).all():
        raise BadInput(f"rows must be finite numbers, row {int((~finite).nonzero()[0])} is not")
    return rows, positions


def _check_ids(
    ids: Tensor, row_positions: Tensor, shape: DecoderShape, placeholders: Mapping[str, int]
) -> None:
    """Refuse ids that the model has no embedding for; at slots any id will do."""
    is_text = torch.ones(len(ids), dtype=torch.bool)
    is_text[row_positions] = False
    if (unknown := is_text & ((ids < 0) | (ids >= shape.vocab_size))).any():
        at = int(unknown.nonzero()[0])
        raise BadInput(
            f"input_ids must be from 0 to {shape.vocab_size - 1}, got {int(ids[at])} "
            f"at position {at}"
        )
    for name, token_id in placeholders.items():
        if (empty := is_text & (ids == token_id)).any():
            at = int(empty.nonzero()[0])
            raise BadInput(
                f"position {at} is a slot without a row: its id {token_id} is the {name}, and "
                f"row_positions doesn't name it"
            )


def _check_type(name: str, tensor: Tensor, wanted: tuple[torch.dtype, ...]) -> None:
    if tensor.dtype not in wanted:
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in wanted)
        found = str(tensor.dtype).removeprefix("torch.")
        raise BadInput(f"{name} must be one of {allowed}, got {found}")
