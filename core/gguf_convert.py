"""Turns a GGUF file of the Llama family into the Hugging Face layout, once, after a pull.

`config.json`, `model.safetensors` (float32, memory-mapped at every start), `tokenizer.json` and
`chat_template.jinja` are what transformers makes of the same file: equal tensors, equal token ids.
`groups.safetensors` (core/layers/groups.py) keeps the quantised matrices as the file has them.
Who changes what is written here raises `CONVERSIONS` in core/sources.py.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor, dequantize
from safetensors.numpy import save_file

from sensorium.core.errors import BadCheckpoint

_CONTROL = 3  # LLAMA_TOKEN_TYPE_CONTROL of tokenizer.ggml.token_type
_VERBATIM = {
    "special": True,
    "normalized": False,
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
}

_BLOCK_BYTES = {GGMLQuantizationType.Q4_1: 20, GGMLQuantizationType.Q8_0: 34}
_Array = np.ndarray[Any, Any]

_TENSOR_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(source: Path, directory: Path, progress: Callable[[str, int, int], None]) -> None:
    """Write the files of `source` into `directory`; raises BadCheckpoint on another family."""
    reader = GGUFReader(source)
    config = _config(reader)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    _write_tokenizer(reader, directory)
    tensors: dict[str, _Array] = {}
    groups: dict[str, _Array] = {}
    for done, tensor in enumerate(reader.tensors):
        name = _hub_name(tensor.name)
        dequantized = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        tensors[name] = _ordered(dequantized, tensor.name, config)
        for leaf, part in _groups(tensor).items():
            groups[f"{name}.{leaf}"] = _ordered(part, tensor.name, config)
        progress(f"converting {source.name}", done + 1, len(reader.tensors))
    for file_name, content in (("model", tensors), ("groups", groups)):
        progress(f"writing {file_name}.safetensors", 0, 0)
        path = directory / f"{file_name}.safetensors"
        save_file(content, path, metadata={"format": "pt"})
        path.chmod(0o644)  # the library makes it readable by its owner alone


def _value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise BadCheckpoint(f"the GGUF file has no {key}")
    return field.contents()


def _config(reader: GGUFReader) -> dict[str, Any]:
    architecture = _value(reader, "general.architecture")
    if architecture != "llama":
        raise BadCheckpoint(
            f"GGUF files of architecture {architecture!r} are not known, only llama"
        )
    template = _value(reader, "tokenizer.chat_template")
    width = _value(reader, "llama.embedding_length")
    num_heads = _value(reader, "llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": _value(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _value(reader, "llama.block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": _value(reader, "llama.attention.head_count_kv"),
        "head_dim": width // num_heads,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": _value(reader, "llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": _value(reader, "llama.rope.freq_base"),
        "max_position_embeddings": _value(reader, "llama.context_length"),
        "vocab_size": len(_value(reader, "tokenizer.ggml.tokens")),
        "tie_word_embeddings": all(t.name != "output.weight" for t in reader.tensors),
        "bos_token_id": _value(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _value(reader, "tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float32",
        "sensorium": {"grammar": "chatml"} if "<|im_start|>" in template else {},
    }


def _hub_name(name: str) -> str:
    if name in _TENSOR_NAMES:
        return _TENSOR_NAMES[name]
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if layer is None or layer[2] not in _LAYER_NAMES:
        raise BadCheckpoint(f"unknown tensor {name} in the GGUF file")
    return f"model.layers.{layer[1]}.{_LAYER_NAMES[layer[2]]}.weight"


def _groups(tensor: ReaderTensor) -> dict[str, _Array]:
    """Take apart what the file has in groups of 32: core/layers/groups.py's "q", "scale", "min".

    Q4_1: scale, minimum (float16), 16 bytes; the low halves are the first 16 values. Q8_0: scale,
    32 signed bytes. Empty for other types.
    """
    blocks = tensor.data.reshape(len(tensor.data), -1, _BLOCK_BYTES.get(tensor.tensor_type, 1))
    if tensor.tensor_type == GGMLQuantizationType.Q4_1:
        scales = np.ascontiguousarray(blocks[..., :4]).view(np.float16)  # [out, in/32, 2]
        values = np.concatenate([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], axis=-1)
        q = values[..., 0::2] | values[..., 1::2] << 4
        return {"q": q.reshape(len(q), -1), "scale": scales[..., 0], "min": scales[..., 1]}
    if tensor.tensor_type == GGMLQuantizationType.Q8_0:
        scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
        q = blocks[..., 2:] ^ 128  # signed from -128 → unsigned from 0
        return {"q": q.reshape(len(q), -1), "scale": scale, "min": scale * np.float16(-128)}
    return {}


def _ordered(matrix: _Array, name: str, config: dict[str, Any]) -> _Array:
    """Bring the rows of a tensor of the file into our order."""
    if ".attn_q." in name:
        matrix = _halves(matrix, config["num_attention_heads"])
    elif ".attn_k." in name:
        matrix = _halves(matrix, config["num_key_value_heads"])
    return np.ascontiguousarray(matrix)


def _halves(weights: _Array, num_heads: int) -> _Array:
    """Undo llama.cpp's row order of q and k: rotary pairs stand side by side there, here in halves.

    One head of width 4: rows [0, 2, 1, 3] of the file become [0, 1, 2, 3].
    """
    rows, columns = weights.shape
    pairs = weights.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _write_tokenizer(reader: GGUFReader, directory: Path) -> None:
    """Write a byte-level BPE tokenizer (GPT-2's) and the chat template.

    `tokenizer.ggml.pre` is left aside, as transformers does when it reads the same file: SmolLM2's
    own tokenizer isolates digits first, which changes ids only where a digit follows two or more
    white-space characters (digits never merge in its vocabulary).
    """
    if _value(reader, "tokenizer.ggml.model") != "gpt2":
        raise BadCheckpoint(
            "only GGUF files with a byte-level BPE (gpt2) vocabulary can be converted"
        )
    tokens: list[str] = _value(reader, "tokenizer.ggml.tokens")
    merges = [merge.split(" ") for merge in _value(reader, "tokenizer.ggml.merges")]
    kinds: list[int] = _value(reader, "tokenizer.ggml.token_type")
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    content = {
        "version": "1.0",
        "added_tokens": [
            {"id": token_id, "content": tokens[token_id], **_VERBATIM}
            for token_id, kind in enumerate(kinds)
            if kind == _CONTROL
        ],
        "pre_tokenizer": {**byte_level, "trim_offsets": True},
        "decoder": {**byte_level, "trim_offsets": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }
    text = json.dumps(content, ensure_ascii=False)
    (directory / "tokenizer.json").write_text(text, encoding="utf-8")
    template = _value(reader, "tokenizer.chat_template")
    (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
