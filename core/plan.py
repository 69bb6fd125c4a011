"""What serving a model would take: bytes of weights and cache, per GPU and in all, by formula.

Free of torch and of weights: config.json is enough, so the largest model can be planned for here.
The numbers are what the engine allocates: kv_cache.py's blocks, weights.py's parameters. What a
step computes with for a moment (activations) is not among them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sensorium.core.block_pool import cdiv
from sensorium.core.config import EngineConfig
from sensorium.core.errors import CoreError
from sensorium.core.layer_groups import LayerGroup, group_size, layer_groups, most_blocks
from sensorium.core.models.muse_release import MUSE_SPARK_OPEN
from sensorium.core.plan_weights import ModelSize, Units, WeightGroup, model_size

WeightsDtype = Literal["bfloat16", "float16", "float32"]
CacheDtype = Literal["bfloat16", "float16", "float32", "float8"]

ITEM_BYTES: Mapping[str, int] = {"float8": 1, "bfloat16": 2, "float16": 2, "float32": 4}
BUILT_IN: Mapping[str, Mapping[str, Any]] = {"muse-spark-open": MUSE_SPARK_OPEN}
"""Configurations of models that can be planned for without a file."""

SCALE_BYTES = 2
"""Of the scale that each key and value vector of each head has in a float8 cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be served.

    `context`: positions of each session, None for as many as the model has; `tp`: GPUs that share
    a model.
    """

    context: int | None = None
    sessions: int = 1
    tp: int = 1
    weights_dtype: WeightsDtype = "bfloat16"
    cache_dtype: CacheDtype = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightShare:
    """One kind of weights. `split_by` names what GPUs divide; None: each holds all of it."""

    name: str
    num_parameters: int
    dtype: WeightsDtype
    split_by: str | None
    bytes_per_gpu: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShare:
    """One layer group. `positions` is the most that each of its layers holds for one session.

    `padding_bytes_per_gpu` is what equal blocks cost a group that has fewer layers than others.
    """

    window: int | None
    num_layers: int
    positions: int
    num_blocks: int
    vector_bytes_per_gpu: int
    scale_bytes_per_gpu: int
    padding_bytes_per_gpu: int

    @property
    def bytes_per_gpu(self) -> int:
        """All that the group takes, for all sessions."""
        return self.vector_bytes_per_gpu + self.scale_bytes_per_gpu + self.padding_bytes_per_gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Weights and cache, group by group. `notes` say what numbers alone would hide."""

    demand: Demand
    context: int
    weights: tuple[WeightShare, ...]
    cache: tuple[CacheShare, ...]
    null_block_bytes_per_gpu: int
    all_full_vector_bytes: int
    """Keys and values of all sessions if no layer had a window: what windows save."""
    notes: tuple[str, ...]

    @property
    def weight_bytes_per_gpu(self) -> int:
        """All weights that one GPU holds."""
        return sum(share.bytes_per_gpu for share in self.weights)

    @property
    def cache_bytes_per_gpu(self) -> int:
        """All blocks that one GPU holds."""
        return sum(share.bytes_per_gpu for share in self.cache) + self.null_block_bytes_per_gpu

    @property
    def bytes_per_gpu(self) -> int:
        """What each of the `tp` GPUs needs, activations aside."""
        return self.weight_bytes_per_gpu + self.cache_bytes_per_gpu


def make_plan(config: Mapping[str, Any], demand: Demand, engine: EngineConfig) -> Plan:
    """Plan for a parsed config.json with the engine's block size, slack and step.

    Raises CoreError that names what can't be had and its limit, and BadCheckpoint for a
    configuration that can't be served.
    """
    size = model_size(config)
    context = size.shape.max_positions if demand.context is None else demand.context
    _check(demand, context, size)
    kv_heads_per_gpu = cdiv(size.shape.num_kv_heads, demand.tp)
    item = ITEM_BYTES[demand.cache_dtype]
    # keys and values of one position in one layer, on one GPU
    vector_bytes = 2 * kv_heads_per_gpu * size.shape.head_dim * item
    scale_bytes = 2 * kv_heads_per_gpu * SCALE_BYTES if item == 1 else 0
    groups = layer_groups(size.shape.windows)
    block_bytes = group_size(groups) * engine.block_size * (vector_bytes + scale_bytes)
    return Plan(
        demand=demand,
        context=context,
        weights=tuple(_weights(group, demand) for group in size.weights),
        cache=tuple(
            _cache(group, context, demand, engine, vector_bytes, scale_bytes, block_bytes)
            for group in groups
        ),
        null_block_bytes_per_gpu=block_bytes,
        all_full_vector_bytes=size.shape.num_layers
        * (2 * size.shape.num_kv_heads * size.shape.head_dim * item)
        * context
        * demand.sessions,
        notes=_notes(demand, size),
    )


def _check(demand: Demand, context: int, size: ModelSize) -> None:
    """Refuse what can't be served; every message says the limit."""
    for name, value in (("context", context), ("sessions", demand.sessions), ("tp", demand.tp)):
        if value < 1:
            raise CoreError(f"{name} must be at least 1, got {value}")
    if context > size.shape.max_positions:
        raise CoreError(
            f"context {context:,} is more than the model's "
            f"max_position_embeddings, {size.shape.max_positions:,}"
        )
    undivided = [units for units in _units(size) if not _divides(demand.tp, units)]
    if undivided:
        found = ", ".join(f"{units.name} ({units.count:,})" for units in undivided)
        most = min(units.count for units in _units(size) if not units.copied)
        possible = ", ".join(
            str(tp)
            for tp in range(1, most + 1)
            if all(_divides(tp, units) for units in _units(size))
        )
        raise CoreError(
            f"tp {demand.tp} doesn't divide the model's {found}; possible are {possible}"
        )


def _units(size: ModelSize) -> list[Units]:
    return list(dict.fromkeys(group.units for group in size.weights if group.units))


def _divides(tp: int, units: Units) -> bool:
    return units.count % tp == 0 or (units.copied and tp % units.count == 0)


def _weights(group: WeightGroup, demand: Demand) -> WeightShare:
    dtype: WeightsDtype = "float32" if group.float32 else demand.weights_dtype
    parts = min(demand.tp, group.units.count) if group.units else 1
    per_gpu = group.num_parameters // parts * ITEM_BYTES[dtype]
    return WeightShare(
        name=group.name,
        num_parameters=group.num_parameters,
        dtype=dtype,
        split_by=group.units.name if group.units else None,
        bytes_per_gpu=per_gpu,
        total_bytes=per_gpu * demand.tp,
    )


def _cache(
    group: LayerGroup,
    context: int,
    demand: Demand,
    engine: EngineConfig,
    vector_bytes: int,
    scale_bytes: int,
    block_bytes: int,
) -> CacheShare:
    kept = engine.window_slack + engine.max_step_tokens
    blocks = most_blocks([group.window], context, engine.block_size, kept)
    rows = len(group.layers) * blocks * engine.block_size * demand.sessions
    vectors, scales = rows * vector_bytes, rows * scale_bytes
    return CacheShare(
        window=group.window,
        num_layers=len(group.layers),
        positions=blocks * engine.block_size,
        num_blocks=blocks,
        vector_bytes_per_gpu=vectors,
        scale_bytes_per_gpu=scales,
        padding_bytes_per_gpu=blocks * block_bytes * demand.sessions - vectors - scales,
    )


def _notes(demand: Demand, size: ModelSize) -> tuple[str, ...]:
    return tuple(
        f"{units.count} {units.name} for {demand.tp} GPUs: each is kept, with its cache, "
        f"on {demand.tp // units.count} of them"
        for units in _units(size)
        if units.copied and units.count < demand.tp
    )
