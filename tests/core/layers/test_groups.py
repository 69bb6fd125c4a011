from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sensorium.core.errors import BadCheckpoint
from sensorium.core.layers.groups import GROUPS_FILE, read_groups


def write(folder: Path, **changes: torch.Tensor) -> None:
    """Write two matrices, a of 4 bits and b of 8."""
    tensors = {
        "a.q": torch.full((2, 16), 0x21, dtype=torch.uint8),
        "a.scale": torch.ones(2, 1, dtype=torch.float16),
        "a.min": torch.zeros(2, 1, dtype=torch.float16),
        "b.q": torch.full((3, 32), 200, dtype=torch.uint8),
        "b.scale": torch.ones(3, 1, dtype=torch.float16),
        "b.min": torch.full((3, 1), -128, dtype=torch.float16),
    }
    save_file({**tensors, **changes}, folder / GROUPS_FILE)


def test_halves_of_a_byte_are_neighbours_the_low_one_first(tmp_path: Path) -> None:
    write(tmp_path)
    groups = read_groups(tmp_path, ["a", "a"])
    assert groups is not None
    assert groups.dequantized().tolist() == [[1.0, 2.0] * 16] * 4


def test_bytes_are_shifted_by_the_minimum(tmp_path: Path) -> None:
    write(tmp_path)
    groups = read_groups(tmp_path, ["b"])
    assert groups is not None
    assert groups.dequantized().tolist() == [[72.0] * 32] * 3


@pytest.mark.parametrize("names", [["a", "b"], ["c"], ["a", "c"]])
def test_matrices_that_have_no_groups_in_common_have_none(tmp_path: Path, names: list[str]) -> None:
    write(tmp_path)
    assert read_groups(tmp_path, names) is None


def test_folder_without_groups_has_none(tmp_path: Path) -> None:
    assert read_groups(tmp_path, ["a"]) is None


def test_shapes_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    write(tmp_path, **{"a.scale": torch.ones(2, 2, dtype=torch.float16)})
    with pytest.raises(BadCheckpoint, match=r"groups\.safetensors: a: q \[2, 16\], scale \[2, 2\]"):
        read_groups(tmp_path, ["a"])


def test_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / GROUPS_FILE).write_bytes(b"no tensors")
    with pytest.raises(BadCheckpoint, match=r"groups\.safetensors"):
        read_groups(tmp_path, ["a"])
