"""Input files of `sensorium forward`: what is taken, and what every refusal says."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from sensorium.core.forward_input import BadInput, ForwardInput, read_input
from sensorium.core.models.base import DecoderShape

SHAPE = DecoderShape(
    vocab_size=10, width=2, num_kv_heads=1, head_dim=2, max_positions=8, windows=(None,)
)
IMAGE, AUDIO = 8, 9
PLACEHOLDERS = {"image_token_id": IMAGE, "audio_token_id": AUDIO}
IDS = torch.tensor([1, IMAGE, IMAGE, 2, AUDIO])
ROWS = torch.arange(6.0).view(3, 2)
POSITIONS = torch.tensor([1, 2, 4])


def read(folder: Path, **tensors: Tensor) -> ForwardInput:
    save_file(tensors, folder / "in.safetensors")
    return read_input(folder / "in.safetensors", SHAPE, PLACEHOLDERS)


def test_ids_and_rows_come_in_runs(tmp_path: Path) -> None:
    given = read(tmp_path, input_ids=IDS, rows=ROWS, row_positions=POSITIONS)
    contents = [c if isinstance(c, tuple) else c.tolist() for c in given.contents()]
    assert contents == [(1,), [[0.0, 1.0], [2.0, 3.0]], (2,), [[4.0, 5.0]]]


def test_batch_of_one_narrow_types_and_other_tensors_are_taken(tmp_path: Path) -> None:
    given = read(
        tmp_path,
        input_ids=torch.tensor([[3, 1]], dtype=torch.int32),
        rows=torch.ones(1, 2, dtype=torch.bfloat16),
        row_positions=torch.tensor([0], dtype=torch.uint8),
        elsewhere=torch.ones(1),
    )
    assert list(given.contents())[1:] == [(1,)]


def test_any_id_may_stand_at_a_slot(tmp_path: Path) -> None:
    ids = torch.tensor([-7, 1, 99])
    given = read(tmp_path, input_ids=ids, rows=ROWS[:2], row_positions=torch.tensor([0, 2]))
    assert [type(c) for c in given.contents()] == [Tensor, tuple, Tensor]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"input_ids": None}, "holds no input_ids, but row_positions, rows"),
        ({"row_positions": None}, "has rows without row_positions"),
        ({"rows": None}, "has row_positions without rows"),
        ({"input_ids": IDS.float()}, "input_ids must be one of int64, .*, got float32"),
        ({"input_ids": IDS[None, None]}, r"must be \[n\] or \[1, n\] .*, got \[1, 1, 5\]"),
        ({"input_ids": IDS.expand(2, 5)}, r"got \[2, 5\]"),
        ({"input_ids": IDS[:0]}, r"n from 1 on, got \[0\]"),
        ({"input_ids": torch.ones(9, dtype=torch.long)}, "has 9 positions; .* limit is 8"),
        ({"input_ids": torch.tensor([1, 8, 8, 10, 9])}, "from 0 to 9, got 10 at position 3"),
        ({"input_ids": torch.tensor([-1, 8, 8, 2, 9])}, "from 0 to 9, got -1 at position 0"),
        ({"rows": ROWS.long()}, "rows must be one of float64, .*, got int64"),
        ({"rows": ROWS[:, :1]}, r"rows must be \[m, 2\], got \[3, 1\]"),
        ({"rows": ROWS[0]}, r"rows must be \[m, 2\], got \[2\]"),
        ({"rows": ROWS[:2]}, r"row_positions must be \[2\], one per row, got \[3\]"),
        ({"rows": ROWS.log()}, "finite numbers, row 0 is not"),
        ({"row_positions": POSITIONS.float()}, "row_positions must be one of int64"),
        ({"row_positions": torch.tensor([1, 2, 5])}, "from 0 to 4, got 5"),
        ({"row_positions": torch.tensor([-1, 2, 4])}, "from 0 to 4, got -1"),
        ({"row_positions": torch.tensor([1, 4, 2])}, "must rise, got 2 after 4"),
        ({"row_positions": torch.tensor([1, 4, 4])}, "must rise, got 4 after 4"),
        (
            {"row_positions": torch.tensor([1, 3, 4])},
            "position 2 is a slot without a row: its id 8 is the image_token_id",
        ),
        ({"rows": ROWS[:2], "row_positions": POSITIONS[:2]}, "position 4 .* audio_token_id"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    tensors = {"input_ids": IDS, "rows": ROWS, "row_positions": POSITIONS} | changed
    with pytest.raises(BadInput, match=message):
        read(tmp_path, **{k: v.contiguous() for k, v in tensors.items() if v is not None})


def test_placeholder_without_any_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="position 1 is a slot without a row"):
        read(tmp_path, input_ids=IDS)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.safetensors"
    save_file({"input_ids": IDS}, path)
    content = path.read_bytes()
    for spoilt in (b"", b"text", content[:-1]):
        path.write_bytes(spoilt)
        with pytest.raises(BadInput, match=r"in\.safetensors can't be read"):
            read_input(path, SHAPE, PLACEHOLDERS)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match=f"{missing} can't be read"):
            read_input(missing, SHAPE, PLACEHOLDERS)
