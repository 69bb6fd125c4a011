"""docs/architecture.md as code: who may import whom, where things are, what is banned."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("gateway", "encoders", "core", "kernels", "web")
MODULES = sorted(
    path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")
)
TESTS = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("*.py"))

OURS = {
    "kernels": ("kernels",),
    "encoders": ("encoders", "kernels"),
    "core": (
        "core",
        "kernels",
        "encoders.base",
        "encoders.cache",
        "encoders.media",
        "encoders.pool",
        "encoders.registry",
    ),
    "gateway": (
        "gateway",
        "web",
        "core.api",
        "core.config",
        "core.errors",
        "core.text",
        "core.worker",
        "encoders.base",
        "encoders.media",
        "encoders.decode",
        "encoders.frame_choice",
        "encoders.resample",
        "encoders.sizing",
        "encoders.vad",
    ),
    "web": (),
}
COMPOSITION = ("gateway/__main__.py", "gateway/cli/")
COMPOSITION_DOORS = ("core.sources", "core.fetch", "core.forward", "core.plan", "core.encode")
"""The places that wire concrete classes together may also import these: where weights come from,
and what runs a model without a gateway.
"""

OUTSIDE = {
    "kernels": {"torch"},
    "encoders": {"torch", "torchaudio", "numpy"},
    "core": {"torch", "numpy", "safetensors", "msgspec"},
    "gateway": {"starlette", "msgspec", "numpy", "prometheus_client"},
    "web": set(),
}
OUTSIDE_OF_FILE = {
    "encoders/decode_child.py": {"av"},
    "encoders/decode_picture.py": {"PIL"},
    "encoders/decode_sound.py": {"av"},
    "encoders/decode_video.py": {"av", "PIL"},
    "encoders/resample.py": {"soxr"},
    "encoders/vad.py": {"onnxruntime"},
    "encoders/whisper.py": {"ctranslate2"},
    "encoders/whisper_tokens.py": {"tokenizers"},
    "encoders/speech.py": {"ctranslate2", "tokenizers"},
    "encoders/efficientnet.py": {"safetensors"},
    "encoders/ocr.py": {"rapidocr_onnxruntime", "cv2"},
    "core/gguf_convert.py": {"gguf", "tokenizers"},
    "core/fetch.py": {"huggingface_hub"},
    "core/grammar.py": {"llguidance"},
    "core/text/tokenizer.py": {"tokenizers"},
    "core/text/sandbox.py": {"jinja2"},
    "gateway/cli/": {"httpx", "websockets", "uvicorn", "soxr", "sounddevice", "onnxruntime"},
    "gateway/__main__.py": {"uvicorn"},
}
TORCH_FREE = (
    "gateway/",
    "core/api.py",
    "core/config.py",
    "core/model_info.py",
    "core/errors.py",
    "core/text/",
    "core/scheduler.py",
    "core/block_pool.py",
    "core/worker.py",
    "core/ipc.py",
    "core/sources.py",
    "core/layer_groups.py",
    "core/plan.py",
    "core/plan_weights.py",
    "core/models/llama_config.py",
    "core/models/muse_config.py",
    "core/models/muse_release.py",
    "core/models/muse_towers.py",
    "encoders/media.py",
    "encoders/decode.py",
    "encoders/decode_child.py",
    "encoders/decode_job.py",
    "encoders/decode_picture.py",
    "encoders/decode_png.py",
    "encoders/decode_process.py",
    "encoders/decode_server.py",
    "encoders/decode_sound.py",
    "encoders/decode_video.py",
    "encoders/resample.py",
    "encoders/vad.py",
    "encoders/settling.py",
    "encoders/labels.py",
    "encoders/ocr.py",
    "encoders/sizing.py",
    "encoders/frame_choice.py",
)
MAX_LINES = 300
BANNED_FILES = {"utils", "common", "helpers", "misc"}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield every imported module with whether it is imported when the file is."""
    tree = ast.parse((ROOT / path).read_text())
    lazy = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(outer)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            names = [module]
            if module.count(".") < 2 and module.startswith("sensorium"):
                names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            yield name, id(node) not in lazy


def _is_type_checking(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def is_under(path: Path, place: str) -> bool:
    text = path.as_posix()
    return text == place or (place.endswith("/") and text.startswith(place))


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_one_way(path: Path) -> None:
    package = path.parts[0]
    allowed = OURS[package]
    is_composition = any(is_under(path, place) for place in COMPOSITION)
    for name, _ in imports(path):
        if name.startswith("sensorium."):
            module = name.removeprefix("sensorium.")
            doors = (*allowed, *COMPOSITION_DOORS) if is_composition else allowed
            assert any(module == door or module.startswith(f"{door}.") for door in doors), (
                f"{path} imports {name}"
            )


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_outside_packages_stay_where_they_belong(path: Path) -> None:
    allowed = set(OUTSIDE[path.parts[0]])
    for place, names in OUTSIDE_OF_FILE.items():
        if is_under(path, place):
            allowed |= names
    used = {name.split(".")[0] for name, _ in imports(path)}
    foreign = used - set(sys.stdlib_module_names) - {"sensorium"} - allowed
    assert not foreign, f"{path} imports {sorted(foreign)}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_words_and_wires_do_without_torch(path: Path) -> None:
    if any(is_under(path, place) for place in TORCH_FREE):
        eager = {name.split(".")[0] for name, is_eager in imports(path) if is_eager}
        assert not eager & {"torch", "torchaudio", "triton"}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_files_are_short_and_named_for_an_idea(path: Path) -> None:
    assert len((ROOT / path).read_text().splitlines()) <= MAX_LINES
    assert path.stem not in BANNED_FILES


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=str)
def test_exceptions_to_the_rules_give_a_reason(path: Path) -> None:
    for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
        bare = re.search(r"#\s*(type: ignore|noqa)(\[[\w, -]+\]|: [A-Z0-9, ]+)?\s*$", line)
        assert not bare, f"{path}:{number}: {line.strip()}"


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_task_is_an_orphan(path: Path) -> None:
    assert "asyncio.create_task(" not in (ROOT / path).read_text()
    assert "ensure_future(" not in (ROOT / path).read_text()


def test_package_list_is_the_tree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        "sensorium." + path.parent.as_posix().replace("/", ".")
        for path in MODULES
        if path.name == "__init__.py"
    }
    assert listed == found
    assert {f"sensorium.{package}" for package in PACKAGES} <= listed


def test_every_dependency_has_its_reason_beside_it() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    dependencies = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    plain = {"pytest", "pytest-asyncio", "mypy", "ruff"}
    for line in dependencies.splitlines():
        match = re.match(r'\s*"([\w-]+)[^"]*",', line)
        if match and match[1] not in plain:
            assert "#" in line, f"no reason for {match[1]}"


@pytest.mark.parametrize(
    "path", [p for p in TESTS if p.parts[1] in PACKAGES and p.name.startswith("test_")], ids=str
)
def test_tests_mirror_the_tree(path: Path) -> None:
    folder = Path(*path.parts[1:-1])
    stem = path.stem.removeprefix("test_")
    modules = {p.stem for p in MODULES if p.parent == folder}
    parts = stem.split("_")
    prefixes = {"_".join(parts[:count]) for count in range(1, len(parts) + 1)}
    assert modules & prefixes, f"{path}: no module of {folder} is named so"
