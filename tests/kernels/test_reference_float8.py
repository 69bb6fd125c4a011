"""Keys and values in float8 e4m3, with a scale per vector."""

import pytest
import torch

from sensorium.kernels import reference

ROWS = torch.tensor([5, 1, 7])


def caches() -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.zeros(9, 2, 16, dtype=torch.float8_e4m3fn),
        torch.zeros(9, 2, 1, dtype=torch.bfloat16),
    )


@pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0, 3e4])
def test_vectors_of_any_size_come_back_within_a_sixteenth(size: float) -> None:
    x = torch.randn(3, 2, 16, generator=torch.Generator().manual_seed(1)) * size
    cache, scale = caches()
    reference.store(x, ROWS, cache, scale)
    back = reference.load(cache, scale, ROWS, torch.float32)
    # Three bits after the leading one: half a step is a sixteenth. Small values of a vector are
    # coarser: their step is that of 2^-9 of the largest value's scale.
    smallest = x.abs().amax(-1, keepdim=True) / 448 * 2**-10
    assert torch.all((back - x).abs() <= (x.abs() / 16).maximum(smallest) * 1.01)
    assert reference.load(cache, scale, torch.tensor([0, 2]), torch.float32).eq(0).all()


def test_a_vector_of_zeros_stays_zero_and_the_largest_value_is_not_lost() -> None:
    x = torch.zeros(3, 2, 16)
    x[1, 0, 3] = -7.25
    cache, scale = caches()
    reference.store(x, ROWS, cache, scale)
    back = reference.load(cache, scale, ROWS, torch.float32)
    assert back[1, 0, 3] == pytest.approx(-7.25, rel=2**-7)
    x[1, 0, 3] = 0
    back[1, 0, 3] = 0
    assert torch.equal(back, x)


def test_attention_over_float8_is_that_over_what_was_stored() -> None:
    generator = torch.Generator().manual_seed(2)
    q = torch.randn(3, 4, 16, generator=generator)
    k, v = torch.randn(2, 3, 2, 16, generator=generator)
    (k_cache, k_scale), (v_cache, v_scale) = caches(), caches()
    reference.store(k, ROWS, k_cache, k_scale)
    reference.store(v, ROWS, v_cache, v_scale)
    plain_k, plain_v = torch.zeros(2, 9, 2, 16)
    plain_k[ROWS] = reference.load(k_cache, k_scale, ROWS, torch.float32)
    plain_v[ROWS] = reference.load(v_cache, v_scale, ROWS, torch.float32)
    out = reference.prefill_attention(q, k_cache, v_cache, k_scale, v_scale, ROWS, None)
    wanted = reference.prefill_attention(q, plain_k, plain_v, None, None, ROWS, None)
    torch.testing.assert_close(out, wanted)
    rows, lengths = ROWS[None], torch.tensor([3])
    out = reference.decode_attention(q[2:], k_cache, v_cache, k_scale, v_scale, rows, lengths)
    torch.testing.assert_close(out, wanted[2:])


@pytest.mark.parametrize("window", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("cached", [0, 4])
def test_a_window_counts_the_query_itself(window: int, cached: int) -> None:
    generator = torch.Generator().manual_seed(3)
    q = torch.randn(5, 2, 16, generator=generator)
    k_cache, v_cache = torch.randn(2, 12, 2, 16, generator=generator)
    rows = torch.arange(1, 6 + cached)
    out = reference.prefill_attention(q, k_cache, v_cache, None, None, rows, window)
    for i in range(5):
        seen = rows[max(0, cached + i + 1 - window) : cached + i + 1]
        scores = torch.einsum("hd,lhd->hl", q[i], k_cache[seen]) / 4
        wanted = torch.einsum("hl,lhd->hd", scores.softmax(-1), v_cache[seen]).flatten()
        torch.testing.assert_close(out[i], wanted)
