"""The tensors of a checkpoint folder by name, in one file or in shards: found, compared, mapped.

Two layouts are read: `model.safetensors`, and shards with `model.safetensors.index.json`, whose
"weight_map" says which file holds which tensor. Which tensors a model needs is weights.py's matter.
"""

import json
import os
import struct
from collections.abc import Collection
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from sensorium.core.errors import BadCheckpoint, ModelNotFound

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
SUFFIX = ".safetensors"

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit


class Checkpoint:
    """Where each tensor of a folder lies. Opening it reads the headers, not the data."""

    def __init__(self, folder: Path) -> None:
        """Read the index and every shard's header.

        Raises ModelNotFound for missing files, and BadCheckpoint for damaged ones or where index
        and shards disagree.
        """
        single, index = folder / WEIGHTS_FILE, folder / INDEX_FILE
        if single.is_file() and index.is_file():
            raise BadCheckpoint(f"{folder} has both {WEIGHTS_FILE} and {INDEX_FILE}; remove one")
        self.path = index if index.is_file() else single
        """The file that names all tensors, for messages."""
        if self.path == single:
            self._files = dict.fromkeys(_names_in(single), single)
        else:
            self._files = _read_index(index)
            _compare_shards(index, self._files)

    @property
    def names(self) -> Collection[str]:
        """The names of all tensors."""
        return self._files.keys()

    def tensor(self, name: str) -> Tensor:
        """Map one tensor into memory; its pages are read when it is.

        The file is opened anew, so that the pages of earlier tensors can be given back.
        """
        path = self._files[name]
        try:
            with safe_open(path, framework="pt") as file:
                tensor: Tensor = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise _unreadable(path, error) from error
        return tensor

    def file_of(self, name: str) -> Path:
        """Return the file that holds a tensor."""
        return self._files[name]


def _names_in(path: Path) -> set[str]:
    if not path.is_file():
        raise ModelNotFound(f"{path} is missing")
    try:
        with safe_open(path, framework="pt") as file:
            return set(file.keys())
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> BadCheckpoint:
    """Say what is wrong with a file that the library refused: mostly that its end is missing."""
    size = path.stat().st_size
    reason = str(error)
    try:
        with path.open("rb") as file:
            (header_size,) = struct.unpack("<Q", file.read(8))
            needed = 8 + header_size
            if needed <= size and header_size <= _MAX_HEADER_BYTES:
                header = json.loads(file.read(header_size))
                header.pop("__metadata__", None)
                needed += max(tensor["data_offsets"][1] for tensor in header.values())
        if needed > size:
            reason = f"it has {size:,} bytes where its header asks for {needed:,}"
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error):
        pass  # damaged in another way: the library's reason stands
    return BadCheckpoint(f"{path} can't be read: {reason}")


def _read_index(path: Path) -> dict[str, Path]:
    """Return tensor → shard as the index says it; shards lie beside it."""
    try:
        files = json.loads(path.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadCheckpoint(f'{path} isn\'t JSON with a "weight_map": {error}') from error
    if not isinstance(files, dict) or not files:
        raise BadCheckpoint(f'{path}: "weight_map" must map tensor names to files')
    for name, file in files.items():
        if not isinstance(file, str) or Path(file).name != file or not file.endswith(SUFFIX):
            raise BadCheckpoint(
                f"{path} places {name} in {file!r}; a shard is a *{SUFFIX} file beside its index"
            )
    return {name: path.parent / file for name, file in files.items()}


def _compare_shards(index: Path, files: dict[str, Path]) -> None:
    """Refuse shards that don't hold exactly what the index says."""
    for shard in sorted(set(files.values())):
        listed = {name for name, file in files.items() if file == shard}
        if not os.path.isfile(shard):  # unlike Path's, False also for what can't be a name
            raise ModelNotFound(
                f"{shard} is missing; {index.name} lists {len(listed)} tensors there"
            )
        found = _names_in(shard)
        for name in sorted(listed - found):
            raise BadCheckpoint(f"{shard} lacks {name}, which {index.name} places there")
        for name in sorted(found - listed):
            if name in files:
                raise BadCheckpoint(
                    f"{name} is in two shards, {shard} and {files[name].name}; "
                    f"{index.name} names the latter"
                )
            raise BadCheckpoint(f"{shard} has unknown {name}, which {index.name} doesn't list")
