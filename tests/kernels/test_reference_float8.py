"""Keys and values in float8 e4m3, with a scale per vector."""

import pytest
import torch

from sensorium.kernels import reference

ROWS = torch.tensor([5, 1, 7])
ALL = torch.arange(9)
"""Blocks of one row each."""


def caches() -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.zeros(9, 2, 2, 16, dtype=torch.float8_e4m3fn),
        torch.zeros(9, 2, 2, 1, dtype=torch.bfloat16),
    )


def kept(x: torch.Tensor) -> torch.Tensor:
    """What comes back of vectors [3, 2, 2, 16]; the other rows are untouched."""
    cache, scale = caches()
    reference.store(x, ROWS, cache, scale)
    back = reference.load(cache, scale, ALL, 1, torch.float32)
    assert back[[0, 2, 3, 4, 6, 8]].eq(0).all()
    return back[ROWS]


@pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0, 3e4])
def test_vectors_of_any_size_come_back_within_a_sixteenth(size: float) -> None:
    x = torch.randn(3, 2, 2, 16, generator=torch.Generator().manual_seed(1)) * size
    # Three bits after the leading one: half a step is a sixteenth. Small values of a vector are
    # coarser: their step is that of 2^-9 of the largest value's scale.
    smallest = x.abs().amax(-1, keepdim=True) / 448 * 2**-10
    assert torch.all((kept(x) - x).abs() <= (x.abs() / 16).maximum(smallest) * 1.01)


def test_a_vector_of_zeros_stays_zero_and_the_largest_value_is_not_lost() -> None:
    x = torch.zeros(3, 2, 2, 16)
    x[1, 0, 1, 3] = -7.25
    back = kept(x)
    assert back[1, 0, 1, 3] == pytest.approx(-7.25, rel=2**-7)
    back[1, 0, 1, 3] = x[1, 0, 1, 3]
    assert torch.equal(back, x)


def test_attention_over_float8_is_that_over_what_was_stored() -> None:
    generator = torch.Generator().manual_seed(2)
    q = torch.randn(3, 4, 16, generator=generator)
    cache, scale = caches()
    reference.store(torch.randn(3, 2, 2, 16, generator=generator), ROWS, cache, scale)
    plain = reference.load(cache, scale, ALL, 1, torch.float32)
    out = reference.prefill_attention(q, cache, scale, ROWS, 1, 0, 3, None)
    wanted = reference.prefill_attention(q, plain, None, ROWS, 1, 0, 3, None)
    torch.testing.assert_close(out, wanted)
    out = reference.decode_attention(q[2:], cache, scale, ROWS[None], torch.zeros(1, 3))
    torch.testing.assert_close(out, wanted[2:])


@pytest.mark.parametrize("window", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("cached", [0, 4])
def test_a_window_counts_the_query_itself(window: int, cached: int) -> None:
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(5, 2, 16, generator=generator)
    cache = torch.randn(12, 2, 2, 16, generator=generator)
    blocks = torch.arange(1, 6 + cached)
    out = reference.prefill_attention(q, cache, None, blocks, 1, 0, len(blocks), window)
    for i in range(5):
        k, v = cache[blocks[max(0, cached + i + 1 - window) : cached + i + 1]].unbind(1)
        scores = torch.einsum("hd,lhd->hl", q[i], k) / 4
        wanted = torch.einsum("hl,lhd->hd", scores.softmax(-1), v).flatten()
        torch.testing.assert_close(out[i], wanted)
