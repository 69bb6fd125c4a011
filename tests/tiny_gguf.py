"""A GGUF file of the Llama family with one layer."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

WIDTH, HEADS, KV_HEADS = 32, 2, 1
HEAD = WIDTH // HEADS
TEMPLATE = "{{ '<|im_start|>' }}"


def write_gguf(
    path: Path,
    architecture: str = "llama",
    extra_tensor: str = "",
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
) -> np.ndarray[Any, Any]:
    """Write a one-layer model whose matrices count upwards; returns q as it stands in the file.

    `kind` is the type of q, k and v.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(16)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<|im_start|>", "a", "b", "ab"])
    writer.add_token_types([3, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    q = np.arange(WIDTH * WIDTH, dtype=np.float32).reshape(WIDTH, WIDTH)
    writer.add_tensor("token_embd.weight", np.ones((4, WIDTH), np.float32))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for name, matrix in (("q", q), ("k", q[:HEAD]), ("v", q[:HEAD])):
        data = gguf.quantize(matrix, kind)
        writer.add_tensor(f"blk.0.attn_{name}.weight", data, raw_dtype=kind)
    if extra_tensor:
        writer.add_tensor(extra_tensor, q)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return q
