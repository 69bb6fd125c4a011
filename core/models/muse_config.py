"""What a Muse Spark checkpoint's config.json says of its decoder, checked field by field.

Free of torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from sensorium.core.errors import BadCheckpoint
from sensorium.core.models.base import DecoderShape


@dataclass(frozen=True, slots=True, kw_only=True)
class MuseSparkConfig:
    """The `text_config` of a `muse_spark` checkpoint, as far as the decoder needs it."""

    shape: DecoderShape
    num_heads: int
    inner_width: int
    """Of the dense layers."""
    rotary: tuple[bool, ...]
    """Which layers rotate queries and keys; the others don't see positions."""
    rope_theta: float
    dense: tuple[bool, ...]
    """Which layers have one feed-forward network instead of experts."""
    num_experts: int
    num_chosen: int
    """Experts per token."""
    expert_width: int
    expert_inner_width: int
    routed_scaling: float
    eps: float
    post_eps: float
    """Of the norms that end a branch."""
    q_factor: float
    gate_temperature: float
    output_multiplier: float
    logit_cap: float

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "MuseSparkConfig":
        """Read Hugging Face's keys. Raises BadCheckpoint for what is missing or not supported."""
        top, text = _Section("", config), _Section("text_config", config.get("text_config"))
        for section in (top, text):
            section.refuse_other_than("quantization_config", None)
            section.refuse_other_than("tie_word_embeddings", False, None)
        text.refuse_other_than("model_type", "muse_spark_text", None)
        text.refuse_other_than("hidden_act", "silu", None)
        text.refuse_other_than("attention_bias", False, None)
        num_layers, width = text.count("num_hidden_layers"), text.count("hidden_size")
        if config.get("audio_config") is not None:
            audio = _Section("audio_config", config["audio_config"])
            audio.refuse_other_than("out_hidden_size", width)
        num_heads, num_kv_heads = (
            text.count("num_attention_heads"),
            text.count("num_key_value_heads"),
        )
        if num_heads % num_kv_heads:
            text.fail("num_key_value_heads", num_kv_heads, f"a divisor of {num_heads} heads")
        head_dim = text.count("head_dim")
        if head_dim % 2:
            text.fail("head_dim", head_dim, "an even number")
        num_experts, num_chosen = (
            text.count("num_local_experts"),
            text.count("num_experts_per_tok"),
        )
        if num_chosen > num_experts:
            text.fail("num_experts_per_tok", num_chosen, f"at most {num_experts} experts")
        kinds = text.names("layer_types", num_layers, ("full_attention", "sliding_attention"))
        window = text.count("sliding_window") if "sliding_attention" in kinds else None
        rope_theta, rotary = _rope(text, num_layers)
        dense = text.names("mlp_layer_types", num_layers, ("sparse", "dense"))
        return cls(
            shape=DecoderShape(
                vocab_size=text.count("vocab_size"),
                width=width,
                num_kv_heads=num_kv_heads,
                head_dim=head_dim,
                max_positions=text.count("max_position_embeddings"),
                windows=tuple(window if k == "sliding_attention" else None for k in kinds),
                placeholder_ids=tuple(top.count(name) for name in _PLACEHOLDERS),
            ),
            num_heads=num_heads,
            inner_width=text.count("intermediate_size"),
            rotary=rotary,
            rope_theta=rope_theta,
            dense=tuple(kind == "dense" for kind in dense),
            num_experts=num_experts,
            num_chosen=num_chosen,
            expert_width=text.count("moe_hidden_size"),
            expert_inner_width=text.count("moe_intermediate_size"),
            routed_scaling=text.positive("routed_scaling_factor"),
            eps=text.positive("rms_norm_eps"),
            post_eps=text.positive("post_norm_eps"),
            q_factor=text.positive("qk_scale_factor"),
            gate_temperature=text.positive("residual_gate_temperature"),
            output_multiplier=text.positive("output_multiplier"),
            logit_cap=text.positive("final_logit_softcapping"),
        )


_PLACEHOLDERS = ("image_token_id", "video_token_id", "audio_token_id")


def _rope(text: "_Section", num_layers: int) -> tuple[float, tuple[bool, ...]]:
    """Return theta, and which layers rotate: those whose own theta isn't 0."""
    rope = text.section("rope_parameters")
    rope.refuse_other_than("rope_type", "default")
    theta = rope.positive("rope_theta")
    thetas = text.listed("layer_rope_theta", num_layers)
    for layer, own in enumerate(thetas):
        if own not in (0, theta):
            text.fail(f"layer_rope_theta[{layer}]", own, f"0 or rope_theta, {theta}")
    return theta, tuple(own != 0 for own in thetas)


class _Section:
    """One object of the file; every complaint names the field, what it is and what it may be."""

    def __init__(self, path: str, values: object) -> None:
        if not isinstance(values, Mapping):
            raise BadCheckpoint(f"config.json: {path} is {values!r}; supported: an object")
        self._path = path
        self._values: Mapping[str, Any] = values

    def fail(self, name: str, found: object, supported: str) -> NoReturn:
        where = f"{self._path}.{name}" if self._path else name
        raise BadCheckpoint(f"config.json: {where} is {found!r}; supported: {supported}")

    def section(self, name: str) -> "_Section":
        return _Section(f"{self._path}.{name}", self._values.get(name))

    def refuse_other_than(self, name: str, *supported: object) -> None:
        """Refuse a value that isn't listed; list None where the field may be absent."""
        found = self._values.get(name)
        if found not in supported:
            names = ["none" if value is None else repr(value) for value in supported]
            self.fail(name, found, " or ".join(names))

    def count(self, name: str) -> int:
        """Return a whole number from 1 on."""
        found: object = self._values.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            self.fail(name, found, "a whole number from 1 on")
        return found

    def positive(self, name: str) -> float:
        """Return a number above 0."""
        found: object = self._values.get(name)
        if not isinstance(found, int | float) or found is True or not 0 < found < float("inf"):
            self.fail(name, found, "a number above 0")
        return float(found)

    def listed(self, name: str, length: int) -> list[Any]:
        """Return a list with one entry per layer."""
        found: object = self._values.get(name)
        if not isinstance(found, list) or len(found) != length:
            self.fail(name, found, f"a list of {length}, one entry per layer")
        return found

    def names(self, name: str, length: int, supported: tuple[str, ...]) -> list[str]:
        """Return a list of `supported` names, one per layer."""
        found = self.listed(name, length)
        for layer, entry in enumerate(found):
            if entry not in supported:
                self.fail(f"{name}[{layer}]", entry, " or ".join(supported))
        return found
