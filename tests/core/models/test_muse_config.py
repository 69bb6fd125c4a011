import json
from pathlib import Path
from typing import Any

import pytest
from muse_checkpoint import cached_tiny_muse

from sensorium.core.errors import BadCheckpoint
from sensorium.core.models.muse_config import MuseSparkConfig


@pytest.fixture(scope="module")
def folder() -> Path:
    return cached_tiny_muse()


@pytest.fixture
def config(folder: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((folder / "config.json").read_bytes())
    return parsed


def test_layers_are_what_their_lists_say(config: dict[str, Any]) -> None:
    text = config["text_config"]
    text["mlp_layer_types"][2] = "dense"
    text["layer_rope_theta"][4] = 0  # a window layer without positions: the lists are independent
    found = MuseSparkConfig.from_json(config)
    assert found.shape.windows == (8, None, 8, 8, 8, None)
    assert found.rotary == (True, False, True, True, False, False)
    assert found.dense == (False, False, True, False, False, False)


def test_every_number_is_read_from_its_own_field(config: dict[str, Any]) -> None:
    found = MuseSparkConfig.from_json(config)
    shape = found.shape
    assert (shape.vocab_size, shape.width, shape.max_positions) == (384, 64, 4096)
    assert (found.num_heads, shape.num_kv_heads, shape.head_dim) == (8, 2, 16)
    assert (found.num_experts, found.num_chosen, found.inner_width) == (12, 3, 96)
    assert (found.expert_width, found.expert_inner_width) == (40, 24)
    assert (found.eps, found.post_eps, found.rope_theta) == (1e-5, 1e-8, 500_000)
    assert (found.q_factor, found.routed_scaling, found.gate_temperature) == (1.75, 1.5, 0.3)
    assert (found.output_multiplier, found.logit_cap) == (2.0, 20.0)


@pytest.mark.parametrize(
    ("path", "value", "supported"),
    [
        ("text_config", None, "an object"),
        ("text_config.model_type", "muse_glimmer_text", "muse_spark_text"),
        ("text_config.hidden_act", "gelu", "silu"),
        ("text_config.attention_bias", True, "False"),
        ("text_config.tie_word_embeddings", True, "False"),
        ("tie_word_embeddings", True, "False"),
        ("quantization_config", {"quant_method": "modelopt"}, "none"),
        ("text_config.rope_parameters.rope_type", "yarn", "default"),
        ("text_config.rope_parameters.rope_theta", None, "a number above 0"),
        ("text_config.hidden_size", None, "a whole number from 1 on"),
        ("text_config.hidden_size", 64.0, "a whole number from 1 on"),
        ("text_config.num_local_experts", 0, "a whole number from 1 on"),
        ("text_config.num_experts_per_tok", 13, "at most 12"),
        ("text_config.moe_hidden_size", True, "a whole number from 1 on"),
        ("text_config.moe_intermediate_size", "24", "a whole number from 1 on"),
        ("text_config.sliding_window", None, "a whole number from 1 on"),
        ("text_config.num_key_value_heads", 3, "a divisor of 8"),
        ("text_config.head_dim", 15, "an even number"),
        ("text_config.post_norm_eps", -1e-8, "a number above 0"),
        ("text_config.qk_scale_factor", float("nan"), "a number above 0"),
        ("text_config.layer_types", ["full_attention"], "a list of 6"),
        ("text_config.layer_types.1", "chunked_attention", "full_attention or sliding_attention"),
        ("text_config.mlp_layer_types.5", "shared", "sparse or dense"),
        ("text_config.layer_rope_theta.0", 10_000.0, "0 or rope_theta, 500000.0"),
        ("audio_config.out_hidden_size", 63, "64"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(
    config: dict[str, Any], path: str, value: object, supported: str
) -> None:
    *parents, leaf = path.split(".")
    owner: Any = config
    for name in parents:
        owner = owner[name]
    owner[int(leaf) if leaf.isdigit() else leaf] = value
    with pytest.raises(BadCheckpoint) as refused:
        MuseSparkConfig.from_json(config)
    message = str(refused.value)
    named = ".".join(parents) + f"[{leaf}]" if leaf.isdigit() else path
    assert f"{named} is {value!r}; supported: " in message
    assert supported in message


def test_a_checkpoint_without_encoders_may_be_read(config: dict[str, Any]) -> None:
    del config["audio_config"], config["vision_config"]
    assert MuseSparkConfig.from_json(config).shape.width == 64
