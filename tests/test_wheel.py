"""The wheel: what is installed is `sensorium.*` alone, with the page and the pins in it."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of all files in a freshly built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    where = ["-w", str(folder), str(ROOT)]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *where]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_no_other_packages_name_is_taken(names: set[str]) -> None:
    assert {name.split("/")[0].split("-")[0] for name in names} == {"sensorium"}


def test_page_and_pins_are_inside(names: set[str]) -> None:
    wanted = [f"sensorium/web/{path.name}" for path in (ROOT / "web").iterdir() if path.is_file()]
    data = {"sensorium/core/models.toml", "sensorium/core/probe.wav"}
    data |= {"sensorium/encoders/imagenet.txt"}
    assert set(wanted) | data <= names


def test_every_module_is_inside(names: set[str]) -> None:
    folders = ("gateway", "encoders", "core", "kernels")
    modules = {
        path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")
    }
    assert {f"sensorium/{path.as_posix()}" for path in modules} <= names
