"""What a Llama checkpoint's config.json says. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sensorium.core.errors import BadCheckpoint
from sensorium.core.models.base import DecoderShape


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """What config.json says, as far as the family needs it."""

    shape: DecoderShape
    inner_width: int
    num_heads: int
    rope_theta: float
    norm_eps: float
    tied_head: bool

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "LlamaConfig":
        """Read Hugging Face's keys. Raises BadCheckpoint for what is missing or not supported."""
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        unsupported = {
            "hidden_act": config.get("hidden_act", "silu") != "silu",
            "attention_bias": config.get("attention_bias", False),
            "mlp_bias": config.get("mlp_bias", False),
            "rope_scaling": rope.get("rope_type", rope.get("type", "default")) != "default",
        }
        if any(unsupported.values()):
            names = ", ".join(name for name, bad in unsupported.items() if bad)
            raise BadCheckpoint(f"config.json asks for what this family has no code for: {names}")
        try:
            num_heads = int(config["num_attention_heads"])
            width = int(config["hidden_size"])
            return cls(
                shape=DecoderShape(
                    vocab_size=int(config["vocab_size"]),
                    width=width,
                    num_kv_heads=int(config.get("num_key_value_heads") or num_heads),
                    head_dim=int(config.get("head_dim") or width // num_heads),
                    max_positions=int(config["max_position_embeddings"]),
                    windows=(None,) * int(config["num_hidden_layers"]),
                ),
                inner_width=int(config["intermediate_size"]),
                num_heads=num_heads,
                rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
                norm_eps=float(config["rms_norm_eps"]),
                tied_head=bool(config.get("tie_word_embeddings", False)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadCheckpoint(f"config.json: missing or not a number: {error}") from error
