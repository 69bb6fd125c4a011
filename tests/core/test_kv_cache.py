from dataclasses import replace

import pytest
import torch
from tiny_model import tiny_model

from sensorium.core.kv_cache import KVCache, block_bytes, num_blocks_in

SHAPE = tiny_model().shape
BLOCK_BYTES = 2 * SHAPE.num_layers * 4 * SHAPE.num_kv_heads * SHAPE.head_dim * 2


def test_layers_are_writable_views_that_begin_as_zeros() -> None:
    cache = KVCache(
        SHAPE, num_blocks=3, block_size=4, dtype=torch.float32, device=torch.device("cpu")
    )
    kv, scale = cache.layer(1)
    assert scale is None
    assert kv.shape == (16, 2, SHAPE.num_kv_heads, SHAPE.head_dim)
    kv[5, 0] = 1.0
    assert cache.layer(1).cache[5, 0].eq(1).all()
    assert not cache.layer(1).cache[5, 1].any()
    assert not cache.layer(0).cache.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn], ids=str)
def test_blocks_are_cleared_in_all_layers_and_nothing_else_is(dtype: torch.dtype) -> None:
    cache = KVCache(SHAPE, num_blocks=3, block_size=4, dtype=dtype, device=torch.device("cpu"))
    tensors = [t for i in range(SHAPE.num_layers) for t in cache.layer(i) if t is not None]
    for tensor in tensors:
        tensor.copy_(torch.full(tensor.shape, torch.nan))
    cache.clear([3, 1])
    for tensor in tensors:
        rows = tensor.float()
        assert rows[[*range(4, 8), *range(12, 16)]].eq(0).all()
        assert rows[[*range(4), *range(8, 12)]].isnan().all()


def test_budget_pays_for_whole_blocks_and_the_null_block() -> None:
    budget = 10 * BLOCK_BYTES + 5
    assert num_blocks_in(budget, SHAPE, 4, torch.bfloat16, max_sequences=100) == 9


def test_no_more_blocks_than_all_sequences_could_use() -> None:
    assert num_blocks_in(1 << 30, SHAPE, 4, torch.bfloat16, max_sequences=2) == 100


def test_a_float8_cache_has_a_scale_per_vector_and_costs_them() -> None:
    cache = KVCache(
        SHAPE, num_blocks=3, block_size=4, dtype=torch.float8_e4m3fn, device=torch.device("cpu")
    )
    scale = cache.layer(0).scale
    assert scale is not None
    assert scale.shape == (16, 2, SHAPE.num_kv_heads, 1)
    held = sum(t.nbytes for i in range(SHAPE.num_layers) for t in cache.layer(i) if t is not None)
    assert held == 4 * block_bytes(SHAPE, 4, torch.float8_e4m3fn)


def test_equal_groups_take_turns_in_the_same_tensors() -> None:
    shape = replace(SHAPE, windows=(8, None, 8, 8, 8, None))
    cache = KVCache(
        shape, num_blocks=3, block_size=4, dtype=torch.float32, device=torch.device("cpu")
    )
    assert [group.layers for group in cache.groups] == [(0, 2), (3, 4), (1, 5)]
    assert [cache.group_of(i) for i in range(6)] == [0, 2, 0, 1, 1, 2]
    places = [cache.layer(i).cache.data_ptr() for i in range(6)]
    assert places[0] == places[1] == places[3]
    assert places[2] == places[4] == places[5] != places[0]
