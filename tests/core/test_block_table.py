from sensorium.core.block_table import TURN_HEAD, BlockTable


def _table(window: int | None, num_blocks: int) -> BlockTable:
    table = BlockTable(window, 4)
    table.blocks = list(range(1, num_blocks + 1))
    return table


def test_without_a_window_nothing_is_given_up() -> None:
    table = _table(None, 5)
    assert table.retire(20, slack=0) == []
    assert table.reaches(20)
    assert table.reaches(0)
    assert not table.reaches(21)


def test_a_window_keeps_what_the_next_query_sees() -> None:
    table = _table(6, 5)
    # Position 20 sees 15 … 20: the block of 12 … 15 stays.
    assert table.retire(20, slack=0) == [1, 2, 3]
    assert table.held == [4, 5]
    assert table.reaches(20)
    assert not table.reaches(16)


def test_slack_lets_so_many_positions_be_taken_back() -> None:
    for slack in range(1, 12):
        table = _table(6, 5)
        table.retire(20, slack=slack)
        assert all(table.reaches(20 - back) for back in range(slack + 1))


def test_boundaries_and_the_head_before_them_stay_reachable() -> None:
    table = _table(6, 50)
    table.retire(200, slack=0, boundaries=[100])
    assert all(table.reaches(p) for p in range(100 - TURN_HEAD, 101))
    assert not table.reaches(150)
    assert table.reaches(200)
    # Once the boundary is forgotten, its blocks go as well.
    table.retire(200, slack=0)
    assert len(table.held) == 2


def test_given_up_blocks_are_reported_once() -> None:
    table = _table(4, 6)
    freed = [b for computed in range(25) for b in table.retire(computed, slack=2)]
    assert freed == [1, 2, 3, 4]
    assert table.cut(0) == [5, 6]


def test_rows_of_a_range() -> None:
    table = _table(None, 5)
    assert table.rows(5, 13) == ([2, 3, 4], 1)


def test_a_fork_borrows_full_blocks_only() -> None:
    table, other = _table(6, 5), BlockTable(6, 4)
    table.retire(18, slack=2)
    assert table.lend(other, 16) == [3, 4]
    assert other.reaches(16)
    assert other.missing(17) == 1
    assert other.held == [3, 4]
