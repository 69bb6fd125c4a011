"""The CPU's kernels against the references that they stand for."""

import pytest
import torch

from sensorium import kernels
from sensorium.kernels import cpu, reference, reference_gates, reference_moe

BLOCK, ROWS, HK = 4, 80, 2


@pytest.mark.parametrize(
    ("tokens", "first", "end"), [(1, 0, 1), (1, 3, 40), (7, 0, 7), (13, 2, 61)]
)
@pytest.mark.parametrize("window", [None, 1, 5, 100])
@pytest.mark.parametrize("num_heads", [2, 6])
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.float8_e4m3fn], ids=str)
def test_prefill_attention_equals_the_reference(
    tokens: int, first: int, end: int, window: int | None, num_heads: int, cache_dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(end)
    cache = torch.randn(ROWS, 2, HK, 31, generator=generator).to(cache_dtype)
    scale = None
    if cache_dtype is not torch.float32:
        scale = torch.randn(ROWS, 2, HK, 1, generator=generator).bfloat16()
    q = torch.randn(tokens, num_heads, 31, generator=generator)
    blocks = torch.randperm(ROWS // BLOCK, generator=generator)[: -(-end // BLOCK)]
    arguments = (q, cache, scale, blocks, BLOCK, first, end, window)
    torch.testing.assert_close(
        kernels.prefill_attention(*arguments), reference.prefill_attention(*arguments)
    )


def test_bfloat16_attention_is_near_that_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(ROWS, 2, HK, 64, generator=generator).bfloat16()
    q = torch.randn(16, 6, 64, generator=generator).bfloat16()
    blocks = torch.randperm(ROWS // BLOCK, generator=generator)[:10]
    out = kernels.prefill_attention(q, cache, None, blocks, BLOCK, 1, 39, None)
    exact = reference.prefill_attention(q.float(), cache.float(), None, blocks, BLOCK, 1, 39, None)
    torch.testing.assert_close(out.float(), exact, atol=2e-2, rtol=0)


def test_long_prefill_takes_no_memory_for_its_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(ROWS, 2, HK, 8, generator=generator)
    q = torch.randn(3, 6, 8, generator=generator)
    arguments = (q, cache, None, torch.arange(3), BLOCK, 0, 10, None)
    expected = cpu.prefill_attention(*arguments)
    monkeypatch.setattr(cpu, "_MOST_SCORES", 100)
    torch.testing.assert_close(cpu.prefill_attention(*arguments), expected)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("rows", [1, 2])
def test_norm_of_few_rows_is_the_reference_but_for_one_rounding(rows: int, size: float) -> None:
    generator = torch.Generator().manual_seed(4)
    x, residual = (torch.randn(2, rows, 96, generator=generator) * size).bfloat16()
    weight = torch.randn(96, generator=generator).bfloat16()
    normed, total = cpu.add_rms_norm(x, residual, weight, 1e-5)
    wanted, wanted_total = reference.add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, wanted_total)
    assert normed.shape == wanted.shape
    torch.testing.assert_close(normed, wanted, rtol=2**-7, atol=0)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_mixing_few_rows_equals_the_reference(
    size: float, rows: int, scaled: bool, dtype: torch.dtype, tolerance: float
) -> None:
    generator = torch.Generator().manual_seed(5)
    residual, branch = torch.randn(2, rows, 48, generator=generator) * size
    branch_scale, alpha, beta, scale = torch.randn(4, 48, generator=generator)
    arguments = (
        *(residual, branch.to(dtype), branch_scale.to(dtype) if scaled else None, 1e-8),
        *(alpha, beta, scale, 1e-5),
    )
    found, wanted = cpu.mix_and_norm(*arguments), reference_gates.mix_and_norm(*arguments)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype is theirs.dtype
        limit = tolerance * (1 + float(theirs.abs().max()))
        torch.testing.assert_close(ours.float(), theirs.float(), atol=limit, rtol=0)


@pytest.mark.parametrize(
    "counts", [[1, 0, 0, 0], [3, 1, 2, 2], [0, 5, 4, 0], [20, 1, 1, 1], [0, 2, 2, 3]]
)
def test_grouped_products_equal_the_reference(counts: list[int]) -> None:
    generator = torch.Generator().manual_seed(6)
    weight = torch.randn(4, 7, 5, generator=generator)
    arguments = (torch.randn(sum(counts), 7, generator=generator), weight, torch.tensor(counts))
    torch.testing.assert_close(
        cpu.grouped_matmul(*arguments), reference_moe.grouped_matmul(*arguments)
    )
