"""A prompt writer without a checkpoint: one token per byte, and ChatML's control tokens."""

import functools
import json
import tempfile
from pathlib import Path

from sensorium.core.text.grammars import GRAMMARS
from sensorium.core.text.prompt import Prompt
from sensorium.core.text.tokenizer import Tokenizer

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": False,
    "use_regex": False,
}


def _byte_characters() -> list[str]:
    """Return the printable stand-in of each byte (GPT-2's byte-level alphabet)."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in kept else next(others)) for byte in range(256)]


def write_tokenizer(folder: Path) -> None:
    """Write a `tokenizer.json` whose ids are 0-255 for bytes, then the control tokens."""
    content = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": 256 + i,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, token in enumerate(CONTROL_TOKENS)
        ],
        "pre_tokenizer": _BYTE_LEVEL,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "vocab": {c: i for i, c in enumerate(_byte_characters())},
            "merges": [],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))


@functools.cache
def tiny_prompt() -> Prompt:
    """Return a prompt writer over single bytes."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        return Prompt(Tokenizer(Path(folder)), GRAMMARS["chatml"])
