"""Where tensors lie: one file or shards, and every way in which index and shards disagree."""

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sensorium.core.checkpoint import INDEX_FILE, WEIGHTS_FILE, Checkpoint
from sensorium.core.errors import BadCheckpoint, ModelNotFound

A, B, C = torch.ones(2, 3), torch.arange(5.0), torch.zeros(4, dtype=torch.bfloat16)
PLACES = {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}


def write_index(folder: Path, places: object) -> None:
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    save_file({"a": A}, tmp_path / "one.safetensors")
    save_file({"b": B, "c": C}, tmp_path / "two.safetensors")
    write_index(tmp_path, PLACES)
    return tmp_path


def test_shards_are_one_checkpoint(shards: Path) -> None:
    checkpoint = Checkpoint(shards)
    assert set(checkpoint.names) == {"a", "b", "c"}
    assert torch.equal(checkpoint.tensor("a"), A)
    assert torch.equal(checkpoint.tensor("b"), B)
    assert checkpoint.tensor("c").dtype == torch.bfloat16
    assert checkpoint.file_of("c") == shards / "two.safetensors"


def test_single_file_needs_no_index(tmp_path: Path) -> None:
    save_file({"a": A}, tmp_path / WEIGHTS_FILE)
    checkpoint = Checkpoint(tmp_path)
    assert set(checkpoint.names) == {"a"}
    assert torch.equal(checkpoint.tensor("a"), A)


def test_single_file_beside_an_index_is_refused(shards: Path) -> None:
    save_file({"a": A}, shards / WEIGHTS_FILE)
    with pytest.raises(BadCheckpoint, match=r"has both .*; remove one"):
        Checkpoint(shards)


def test_missing_shard_is_named(shards: Path) -> None:
    (shards / "two.safetensors").unlink()
    with pytest.raises(ModelNotFound, match=r"two\.safetensors is missing; .* lists 2 tensors"):
        Checkpoint(shards)


@pytest.mark.parametrize("name", ["a" * 300, "a\0"])
def test_name_that_no_file_can_have_is_missing(shards: Path, name: str) -> None:
    write_index(shards, {**PLACES, "a": f"{name}.safetensors"})
    with pytest.raises(ModelNotFound, match=r"is missing"):
        Checkpoint(shards)


def test_tensor_missing_in_its_shard_is_named(shards: Path) -> None:
    save_file({"b": B}, shards / "two.safetensors")
    with pytest.raises(BadCheckpoint, match=r"two\.safetensors lacks c, which"):
        Checkpoint(shards)


def test_tensor_in_two_shards_is_named(shards: Path) -> None:
    save_file({"a": A, "b": B}, shards / "one.safetensors")
    with pytest.raises(BadCheckpoint, match=r"b is in two shards, .*one.* and two"):
        Checkpoint(shards)


def test_tensor_that_the_index_lacks_is_named(shards: Path) -> None:
    save_file({"a": A, "extra": B}, shards / "one.safetensors")
    with pytest.raises(BadCheckpoint, match=r"one\.safetensors has unknown extra"):
        Checkpoint(shards)


@pytest.mark.parametrize(
    "place", ["../one.safetensors", "/etc/passwd", "in/one", "..", "", 7, "one.bin"]
)
def test_index_cannot_point_outside_its_folder(shards: Path, place: object) -> None:
    write_index(shards, {**PLACES, "a": place})
    with pytest.raises(BadCheckpoint, match=r"places a in .*; a shard is a .* beside its index"):
        Checkpoint(shards)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_damaged_index_is_refused(shards: Path, text: str) -> None:
    (shards / INDEX_FILE).write_text(text)
    with pytest.raises(BadCheckpoint, match="weight_map"):
        Checkpoint(shards)


def test_shard_whose_data_is_cut_says_how_much_is_missing(shards: Path) -> None:
    path = shards / "two.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    wanted = rf"two\.safetensors can't be read: it has {len(whole) - 3} bytes .* for {len(whole)}"
    with pytest.raises(BadCheckpoint, match=wanted):
        Checkpoint(shards)


def test_shard_whose_header_is_cut_says_how_much_is_missing(shards: Path) -> None:
    path = shards / "one.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    header_end = 8 + struct.unpack("<Q", whole[:8])[0]
    with pytest.raises(BadCheckpoint, match=rf"it has 40 bytes .* asks for {header_end}"):
        Checkpoint(shards)


@pytest.mark.parametrize("content", [b"", b"short", struct.pack("<Q", 1 << 60) + b"{}"])
def test_file_that_is_no_safetensors_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / WEIGHTS_FILE).write_bytes(content)
    with pytest.raises(BadCheckpoint, match=r"model\.safetensors can't be read"):
        Checkpoint(tmp_path)


def test_file_cut_after_it_was_opened_is_refused(tmp_path: Path) -> None:
    save_file({"a": A}, tmp_path / WEIGHTS_FILE)
    checkpoint = Checkpoint(tmp_path)
    (tmp_path / WEIGHTS_FILE).write_bytes((tmp_path / WEIGHTS_FILE).read_bytes()[:-1])
    with pytest.raises(BadCheckpoint, match="can't be read"):
        checkpoint.tensor("a")
