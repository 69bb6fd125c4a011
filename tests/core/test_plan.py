"""The plan's bytes against numbers worked out by hand, and against what the engine allocates."""

import dataclasses

import pytest
import tiny_model
import torch

from sensorium.core.config import EngineConfig
from sensorium.core.errors import CoreError
from sensorium.core.kv_cache import KVCache, LayerKV
from sensorium.core.models.muse_release import MUSE_SPARK_OPEN
from sensorium.core.plan import Demand, Plan, make_plan

ENGINE = EngineConfig(block_size=16, window_slack=256, max_step_tokens=256)
GIB = 1 << 30
MILLION = 1 << 20


def spark(demand: Demand) -> Plan:
    return make_plan(MUSE_SPARK_OPEN, demand, ENGINE)


def full_bytes(plan: Plan) -> int:
    return sum(g.vector_bytes_per_gpu for g in plan.cache if g.window is None)


def test_a_million_positions_in_float8_take_32_gib_instead_of_124() -> None:
    plan = spark(Demand(context=MILLION, cache_dtype="float8"))
    assert full_bytes(plan) == 32 * GIB
    assert plan.all_full_vector_bytes == 124 * GIB
    assert full_bytes(spark(Demand(context=MILLION))) == 64 * GIB


def test_float8_adds_two_bytes_per_vector_of_64() -> None:
    for group in spark(Demand(context=MILLION, cache_dtype="float8")).cache:
        assert group.scale_bytes_per_gpu * 32 == group.vector_bytes_per_gpu
    for group in spark(Demand(context=MILLION)).cache:
        assert group.scale_bytes_per_gpu == 0


def test_window_layers_hold_window_slack_and_step_however_long_the_context() -> None:
    plan = spark(Demand(context=MILLION, sessions=3))
    windows = [group for group in plan.cache if group.window]
    assert [group.num_layers for group in windows] == [16, 16, 14]
    # (2048 + 256 + 256) / 16 blocks, and one more since a window may begin inside a block
    assert [group.num_blocks for group in windows] == [161] * 3
    # layers · positions · keys and values · heads · width · bytes · sessions
    assert windows[0].vector_bytes_per_gpu == 16 * 161 * 16 * 2 * 16 * 64 * 2 * 3
    # two layers too few in the last group: their share of each block lies idle
    assert windows[2].padding_bytes_per_gpu == 2 * 161 * 16 * 2 * 16 * 64 * 2 * 3
    assert windows[0].padding_bytes_per_gpu == 0


def test_context_within_the_window_is_held_once() -> None:
    plan = spark(Demand(context=100))
    assert {group.num_blocks for group in plan.cache} == {7}


def test_weights_are_divided_by_units_or_held_whole() -> None:
    plan = spark(Demand(tp=8))
    shares = {share.name: share for share in plan.weights}
    experts, router = shares["experts"], shares["router"]
    assert experts.split_by == "experts"
    assert experts.bytes_per_gpu == 62 * 256 * 3 * 4096 * 4096 * 2 // 8
    assert experts.total_bytes == 8 * experts.bytes_per_gpu
    assert router.split_by is None
    assert router.dtype == "float32"
    assert router.bytes_per_gpu == 62 * 256 * 8193 * 4
    assert plan.weight_bytes_per_gpu == sum(share.bytes_per_gpu for share in plan.weights)


def test_weights_in_float32_take_twice_as_much_but_for_the_router() -> None:
    half, whole = spark(Demand()), spark(Demand(weights_dtype="float32"))
    router = 62 * 256 * 8193 * 4
    twice = 2 * (half.weight_bytes_per_gpu - router)
    assert whole.weight_bytes_per_gpu - router == twice == 821_906_490_368 * 4


def test_gpus_divide_the_cache_by_heads() -> None:
    alone, four = (spark(Demand(context=MILLION, tp=tp)) for tp in (1, 4))
    assert 4 * four.cache_bytes_per_gpu == alone.cache_bytes_per_gpu
    assert four.notes == ()


def test_more_gpus_than_key_value_heads_hold_copies_and_say_so() -> None:
    at_most, beyond = (spark(Demand(context=MILLION, tp=tp)) for tp in (16, 32))
    assert beyond.cache_bytes_per_gpu == at_most.cache_bytes_per_gpu
    (note,) = beyond.notes
    assert "16 key/value heads for 32 GPUs: each is kept, with its cache, on 2" in note
    keys = {share.name: share for share in beyond.weights}["attention k, v"]
    assert keys.total_bytes == 2 * keys.num_parameters * 2


def test_context_is_the_models_where_none_is_named() -> None:
    assert spark(Demand()).context == MILLION


@pytest.mark.parametrize(
    ("demand", "message"),
    [
        (Demand(context=MILLION + 1), r"1,048,577 is more than .*position_embeddings, 1,048,576"),
        (Demand(context=0), "context must be at least 1, got 0"),
        (Demand(sessions=0), "sessions must be at least 1, got 0"),
        (Demand(tp=0), "tp must be at least 1, got 0"),
        (Demand(tp=3), r"tp 3 .* heads \(128\), .*; possible are 1, 2, 4, 8, 16, 32, 64$"),
        (Demand(tp=128), r"tp 128 doesn't divide the model's vocabulary \(202,048\); possible"),
    ],
)
def test_what_cannot_be_had_is_named_with_its_limit(demand: Demand, message: str) -> None:
    with pytest.raises(CoreError, match=message):
        spark(demand)


@pytest.mark.parametrize("cache_dtype", ["float32", "float8"])
def test_plan_is_what_the_cache_allocates(cache_dtype: str) -> None:
    shape = dataclasses.replace(
        tiny_model.tiny_model().shape, windows=(8, None, 8, 8, None, 8, 8, None)
    )
    text = {
        **MUSE_SPARK_OPEN["text_config"],
        "vocab_size": shape.vocab_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": 6,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "layer_types": [
            "sliding_attention" if window else "full_attention" for window in shape.windows
        ],
        "sliding_window": 8,
        "layer_rope_theta": [0] * shape.num_layers,
        "mlp_layer_types": ["sparse"] * shape.num_layers,
        "max_position_embeddings": 100,
    }
    config = {**MUSE_SPARK_OPEN, "text_config": text, "vision_config": None, "audio_config": None}
    engine = EngineConfig(block_size=4, window_slack=3, max_step_tokens=5)
    demand = Demand(sessions=2, cache_dtype="float8" if cache_dtype == "float8" else "float32")
    plan = make_plan(config, demand, engine)
    cache = KVCache(
        shape,
        num_blocks=2 * sum(group.num_blocks for group in plan.cache),
        block_size=4,
        dtype=torch.float8_e4m3fn if cache_dtype == "float8" else torch.float32,
        device=torch.device("cpu"),
    )
    tensors = {
        t.untyped_storage().data_ptr(): t for i in range(8) for t in _tensors(cache.layer(i))
    }
    allocated = sum(t.untyped_storage().nbytes() for t in tensors.values())
    assert allocated == plan.cache_bytes_per_gpu


def _tensors(kv: LayerKV) -> list[torch.Tensor]:
    return [tensor for tensor in kv if tensor is not None]
