"""A small GGUF file of the Llama family, converted: names, row order, tokenizer, refusals."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file

from sensorium.core.errors import BadCheckpoint
from sensorium.core.gguf_convert import convert

WIDTH, HEADS, KV_HEADS = 8, 2, 1
TEMPLATE = "{{ '<|im_start|>' }}"


def write_gguf(
    path: Path, architecture: str = "llama", extra_tensor: str = ""
) -> np.ndarray[Any, Any]:
    """Write a one-layer model whose matrices count upwards; returns q as it stands in the file."""
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
    writer.add_tensor("blk.0.attn_q.weight", q)
    writer.add_tensor("blk.0.attn_k.weight", q[:4])
    writer.add_tensor("blk.0.attn_v.weight", q[:4])
    if extra_tensor:
        writer.add_tensor(extra_tensor, q)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return q


def converted(source: Path) -> Path:
    """Convert beside the source, without progress."""
    convert(source, source.parent, lambda what, done, total: None)
    return source.parent


def test_rotary_pairs_come_in_halves_and_other_rows_stay(tmp_path: Path) -> None:
    q = write_gguf(tmp_path / "m.gguf")
    tensors = load_file(converted(tmp_path / "m.gguf") / "model.safetensors")
    order = [0, 2, 1, 3]
    expected = q[[*order, *(4 + row for row in order)]]
    np.testing.assert_array_equal(tensors["model.layers.0.self_attn.q_proj.weight"], expected)
    np.testing.assert_array_equal(tensors["model.layers.0.self_attn.k_proj.weight"], q[order])
    np.testing.assert_array_equal(tensors["model.layers.0.self_attn.v_proj.weight"], q[:4])


def test_config_says_what_the_file_says(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    config = json.loads((converted(tmp_path / "m.gguf") / "config.json").read_text())
    assert config["num_attention_heads"] == HEADS
    assert config["num_key_value_heads"] == KV_HEADS
    assert config["head_dim"] == WIDTH // HEADS
    assert config["vocab_size"] == 4
    assert config["tie_word_embeddings"] is True
    assert config["sensorium"] == {"grammar": "chatml"}


def test_tokenizer_merges_and_knows_its_control_tokens(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    directory = converted(tmp_path / "m.gguf")
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|>abb").ids == [0, 3, 2]
    assert (directory / "chat_template.jinja").read_text() == TEMPLATE


def test_other_architecture_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", architecture="gemma")
    with pytest.raises(BadCheckpoint, match="gemma"):
        converted(tmp_path / "m.gguf")


def test_unknown_tensor_is_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", extra_tensor="blk.0.attn_q.bias")
    with pytest.raises(BadCheckpoint, match=r"attn_q\.bias"):
        converted(tmp_path / "m.gguf")
