"""Prompt writers without a checkpoint: one token per byte, and a family's control tokens."""

import functools
import json
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sensorium.core.text.chatml import ChatMLPrompt
from sensorium.core.text.grammars import GRAMMARS
from sensorium.core.text.muse import MusePrompt
from sensorium.core.text.tokenizer import Tokenizer

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MUSE_CONTROL_TOKENS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad|>"),
    *("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
    *("<|image_start|>", "<|patch|>", "<|image_end|>"),
    *("<|vid_start|>", "<|video|>", "<|vid_frame_separator|>", "<|vid_end|>"),
    *("<|soft_audio_start|>", "<|audio|>", "<|soft_audio_end|>"),
)
NOON = datetime(2026, 11, 30, 12)

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


def write_tokenizer(folder: Path, control_tokens: Sequence[str] = CONTROL_TOKENS) -> None:
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
            for i, token in enumerate(control_tokens)
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
def tiny_prompt() -> ChatMLPrompt:
    """Return a prompt writer over single bytes."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder))
        return ChatMLPrompt(Tokenizer(Path(folder)), GRAMMARS["chatml"])


@functools.cache
def tiny_muse_tokenizer() -> Tokenizer:
    """Return single bytes and Muse's control tokens."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), MUSE_CONTROL_TOKENS)
        return Tokenizer(Path(folder))


@functools.cache
def tiny_muse_prompt() -> MusePrompt:
    """Return a writer of Muse's prompts over single bytes, without a template."""
    return MusePrompt(tiny_muse_tokenizer(), GRAMMARS["muse"], now=lambda: NOON)


def muse_ids(markup: str) -> list[int]:
    """Return the ids of what a Muse model writes; control strings are control tokens."""
    return tiny_muse_tokenizer().encode_markup(markup)
