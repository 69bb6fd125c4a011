"""A small GGUF file of the Llama family, converted: names, row order, tokenizer, refusals."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file
from tiny_gguf import HEAD, HEADS, KV_HEADS, TEMPLATE, WIDTH, write_gguf

from sensorium.core.errors import BadCheckpoint
from sensorium.core.gguf_convert import convert
from sensorium.core.layers.groups import read_groups


def converted(source: Path) -> Path:
    """Convert beside the source, without progress."""
    convert(source, source.parent, lambda what, done, total: None)
    return source.parent


def test_rotary_pairs_come_in_halves_and_other_rows_stay(tmp_path: Path) -> None:
    q = write_gguf(tmp_path / "m.gguf")
    tensors = load_file(converted(tmp_path / "m.gguf") / "model.safetensors")
    order = [*range(0, HEAD, 2), *range(1, HEAD, 2)]
    expected = q[[*order, *(HEAD + row for row in order)]]
    np.testing.assert_array_equal(tensors["model.layers.0.self_attn.q_proj.weight"], expected)
    np.testing.assert_array_equal(tensors["model.layers.0.self_attn.k_proj.weight"], q[order])
    np.testing.assert_array_equal(tensors["model.layers.0.self_attn.v_proj.weight"], q[:HEAD])


@pytest.mark.parametrize(
    ("kind", "bits"),
    [(gguf.GGMLQuantizationType.Q4_1, 4), (gguf.GGMLQuantizationType.Q8_0, 8)],
)
def test_groups_are_the_very_values_of_the_file(
    tmp_path: Path, kind: gguf.GGMLQuantizationType, bits: int
) -> None:
    write_gguf(tmp_path / "m.gguf", kind=kind)
    folder = converted(tmp_path / "m.gguf")
    tensors = load_file(folder / "model.safetensors")
    names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
    groups = read_groups(folder, names)
    assert groups is not None
    assert groups.bits == bits
    expected = np.concatenate([tensors[name] for name in names])
    np.testing.assert_array_equal(groups.dequantized().numpy(), expected)


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
