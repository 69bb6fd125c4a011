from dataclasses import replace

import torch
from tiny_model import tiny_model

from sensorium.core.kv_cache import KVCache, block_bytes, num_blocks_in

SHAPE = tiny_model().shape
BLOCK_BYTES = 2 * SHAPE.num_layers * 4 * SHAPE.num_kv_heads * SHAPE.head_dim * 2


def test_layers_are_writable_views_that_begin_as_zeros() -> None:
    cache = KVCache(
        SHAPE, num_blocks=3, block_size=4, dtype=torch.float32, device=torch.device("cpu")
    )
    k, v, k_scale, v_scale = cache.layer(1)
    assert k_scale is v_scale is None
    assert k.shape == v.shape == (16, SHAPE.num_kv_heads, SHAPE.head_dim)
    k[5] = 1.0
    assert cache.layer(1)[0][5].eq(1).all()
    assert not cache.layer(1)[1].any()
    assert not cache.layer(0)[0].any()


def test_budget_pays_for_whole_blocks_and_the_null_block() -> None:
    budget = 10 * BLOCK_BYTES + 5
    assert num_blocks_in(budget, SHAPE, 4, torch.bfloat16, max_sequences=100) == 9


def test_no_more_blocks_than_all_sequences_could_use() -> None:
    assert num_blocks_in(1 << 30, SHAPE, 4, torch.bfloat16, max_sequences=2) == 100


def test_a_float8_cache_has_a_scale_per_vector_and_costs_them() -> None:
    cache = KVCache(
        SHAPE, num_blocks=3, block_size=4, dtype=torch.float8_e4m3fn, device=torch.device("cpu")
    )
    k_scale, v_scale = cache.layer(0)[2:]
    assert k_scale is not None
    assert v_scale is not None
    assert k_scale.shape == v_scale.shape == (16, SHAPE.num_kv_heads, 1)
    held = sum(t.nbytes for i in range(SHAPE.num_layers) for t in cache.layer(i) if t is not None)
    assert held == 4 * block_bytes(SHAPE, 4, torch.float8_e4m3fn)


def test_equal_groups_take_turns_in_the_same_tensors() -> None:
    shape = replace(SHAPE, windows=(8, None, 8, 8, 8, None))
    cache = KVCache(
        shape, num_blocks=3, block_size=4, dtype=torch.float32, device=torch.device("cpu")
    )
    assert [group.layers for group in cache.groups] == [(0, 2), (3, 4), (1, 5)]
    assert [cache.group_of(i) for i in range(6)] == [0, 2, 0, 1, 1, 2]
    assert cache.layer(0).k.data_ptr() == cache.layer(1).k.data_ptr() == cache.layer(3).k.data_ptr()
    assert cache.layer(2).k.data_ptr() == cache.layer(5).k.data_ptr() != cache.layer(0).k.data_ptr()
