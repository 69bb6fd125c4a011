from hypothesis import given
from hypothesis import strategies as st

from sensorium.core.block_pool import NULL_BLOCK, BlockPool, cdiv


def test_division_rounds_up() -> None:
    assert [cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_null_block_is_never_handed_out() -> None:
    pool = BlockPool(5)
    assert NULL_BLOCK not in pool.allocate(5)
    assert pool.num_free == 0


def test_shared_block_is_free_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.share(blocks)
    pool.free(blocks)
    assert pool.num_free == 1
    pool.free(blocks)
    assert pool.num_free == 2


@given(st.lists(st.integers(0, 6), max_size=30))
def test_no_block_is_held_twice_and_all_return(counts: list[int]) -> None:
    pool = BlockPool(12)
    held: list[list[int]] = []
    for count in counts:
        if count <= pool.num_free:
            held.append(pool.allocate(count))
        elif held:
            pool.free(held.pop(0))
        taken = [block for blocks in held for block in blocks]
        assert len(taken) == len(set(taken)) == 12 - pool.num_free
    for blocks in held:
        pool.free(blocks)
    assert pool.num_free == 12
