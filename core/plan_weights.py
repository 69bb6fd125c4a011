"""How many parameters a model has, kind by kind, and what of them GPUs can divide among each other.

Counts follow from config.json alone; the shapes behind them are those of each family's module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from sensorium.core.errors import CoreError
from sensorium.core.models.base import DecoderShape
from sensorium.core.models.llama_config import LlamaConfig
from sensorium.core.models.muse_config import MuseSparkConfig
from sensorium.core.models.muse_towers import audio_shapes, vision_shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What a group of weights is divided by: `count` pieces named `name`, none of them cut.

    Where `copied` is set, GPUs beyond `count` hold a piece that another one holds too.
    """

    name: str
    count: int
    copied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGroup:
    """Parameters of one kind, over all layers. Without `units` every GPU holds all of them."""

    name: str
    num_parameters: int
    units: Units | None
    float32: bool = False
    """Kept in float32, whatever the other weights are in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """What a configuration says of memory."""

    shape: DecoderShape
    weights: tuple[WeightGroup, ...]


def model_size(config: Mapping[str, Any]) -> ModelSize:
    """Read a parsed config.json. Raises BadCheckpoint, and CoreError for an unknown family."""
    family = str(config.get("model_type"))
    if family not in _FAMILIES:
        known = ", ".join(sorted(_FAMILIES))
        raise CoreError(f"no plan for model family {family!r}; known are: {known}")
    return _FAMILIES[family](config)


def _llama(config: Mapping[str, Any]) -> ModelSize:
    parsed = LlamaConfig.from_json(config)
    shape, width = parsed.shape, parsed.shape.width
    layers = shape.num_layers
    heads, kv_heads, vocabulary = _units(shape, parsed.num_heads)
    inner = Units(name="inner width", count=parsed.inner_width)
    per_head = shape.head_dim * width
    groups = [
        _group("embedding", shape.vocab_size * width, vocabulary),
        _group("attention q, out", layers * 2 * parsed.num_heads * per_head, heads),
        _group("attention k, v", layers * 2 * shape.num_kv_heads * per_head, kv_heads),
        _group("feed-forward", layers * 3 * parsed.inner_width * width, inner),
        _group("norms", (2 * layers + 1) * width, None),
    ]
    if not parsed.tied_head:
        groups.append(_group("head", shape.vocab_size * width, vocabulary))
    return ModelSize(shape=shape, weights=tuple(groups))


def _muse_spark(config: Mapping[str, Any]) -> ModelSize:
    parsed = MuseSparkConfig.from_json(config)
    shape, width = parsed.shape, parsed.shape.width
    layers, num_dense = shape.num_layers, sum(parsed.dense)
    sparse = layers - num_dense
    heads, kv_heads, vocabulary = _units(shape, parsed.num_heads)
    experts = Units(name="experts", count=parsed.num_experts)
    latent = Units(name="latent width", count=parsed.expert_width)
    inner = Units(name="inner width", count=parsed.inner_width)
    per_head = shape.head_dim * width
    expert = 3 * parsed.expert_inner_width * parsed.expert_width
    norms = layers * 5 * width + width + sparse * 2 * parsed.expert_width
    groups = [
        _group("embedding", shape.vocab_size * width, vocabulary),
        _group("attention q, gate, out", layers * 3 * parsed.num_heads * per_head, heads),
        _group("attention k, v", layers * 2 * shape.num_kv_heads * per_head, kv_heads),
        _group("experts", sparse * parsed.num_experts * expert, experts),
        _group("latent projections", sparse * 2 * parsed.expert_width * width, latent),
        _group("feed-forward, dense", num_dense * 3 * parsed.inner_width * width, inner),
        # every GPU chooses for all tokens
        _group("router", sparse * parsed.num_experts * (width + 1), None, float32=True),
        _group("norms, residual gates", norms, None),
        _group("head", shape.vocab_size * width, vocabulary),
    ]
    # Each GPU encodes other media, so each holds the encoders whole.
    for section, shapes in (("vision", vision_shapes), ("audio", audio_shapes)):
        if config.get(f"{section}_config") is not None:
            count = sum(prod(tensor) for tensor in shapes(config).values())
            groups.append(_group(f"{section} encoder", count, None))
    return ModelSize(shape=shape, weights=tuple(g for g in groups if g.num_parameters))


_FAMILIES: Mapping[str, Callable[[Mapping[str, Any]], ModelSize]] = {
    "llama": _llama,
    "muse_spark": _muse_spark,
}


def _units(shape: DecoderShape, num_heads: int) -> tuple[Units, Units, Units]:
    """Return what every decoder has: query heads, key/value heads and a vocabulary."""
    return (
        Units(name="heads", count=num_heads),
        Units(name="key/value heads", count=shape.num_kv_heads, copied=True),
        Units(name="vocabulary", count=shape.vocab_size),
    )


def _group(
    name: str, num_parameters: int, units: Units | None, *, float32: bool = False
) -> WeightGroup:
    return WeightGroup(name=name, num_parameters=num_parameters, units=units, float32=float32)
