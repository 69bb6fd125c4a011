"""The CPU's kernels against the references that they stand for."""

import pytest
import torch

from sensorium import kernels
from sensorium.kernels import cpu, reference

ROWS, HK = 80, 2


@pytest.mark.parametrize("num_sequences", [1, 2, 4, 5, 16])
@pytest.mark.parametrize("num_heads", [2, 6])
@pytest.mark.parametrize("head_dim", [8, 31])
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.float8_e4m3fn], ids=str)
def test_decode_attention_equals_the_reference(
    num_sequences: int, num_heads: int, head_dim: int, cache_dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(num_sequences)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    scales: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None)
    if cache_dtype is not torch.float32:
        scales = (draw(ROWS, HK, 1).bfloat16(), draw(ROWS, HK, 1).bfloat16())
    caches = draw(ROWS, HK, head_dim).to(cache_dtype), draw(ROWS, HK, head_dim).to(cache_dtype)
    lengths = torch.randint(1, 20, (num_sequences,), generator=generator)
    kv_rows = torch.randint(1, ROWS, (num_sequences, int(lengths.max())), generator=generator)
    kv_rows[torch.arange(kv_rows.shape[1]) >= lengths[:, None]] = 0
    arguments = (draw(num_sequences, num_heads, head_dim), *caches, *scales, kv_rows, lengths)
    torch.testing.assert_close(
        kernels.decode_attention(*arguments), reference.decode_attention(*arguments)
    )


def test_bfloat16_attention_is_near_that_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    k, v = torch.randn(2, ROWS, HK, 64, generator=generator).bfloat16()
    q = torch.randn(16, 6, 64, generator=generator).bfloat16()
    kv_rows = torch.randint(1, ROWS, (16, 40), generator=generator)
    lengths = torch.full((16,), 40)
    out = kernels.decode_attention(q, k, v, None, None, kv_rows, lengths)
    exact = reference.decode_attention(
        q.float(), k.float(), v.float(), None, None, kv_rows, lengths
    )
    torch.testing.assert_close(out.float(), exact, atol=2e-2, rtol=0)


@pytest.mark.parametrize(("tokens", "context"), [(1, 1), (1, 40), (7, 7), (13, 61), (2, 63)])
@pytest.mark.parametrize("window", [None, 1, 5, 100])
@pytest.mark.parametrize("num_heads", [2, 6])
def test_prefill_attention_equals_the_reference(
    tokens: int, context: int, window: int | None, num_heads: int
) -> None:
    generator = torch.Generator().manual_seed(context)
    k, v = torch.randn(2, ROWS, HK, 31, generator=generator)
    q = torch.randn(tokens, num_heads, 31, generator=generator)
    rows = torch.randperm(ROWS, generator=generator)[:context]
    arguments = (q, k, v, None, None, rows, window)
    torch.testing.assert_close(
        kernels.prefill_attention(*arguments), reference.prefill_attention(*arguments)
    )


def test_long_prefill_takes_no_memory_for_its_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    k, v = torch.randn(2, ROWS, HK, 8, generator=generator)
    arguments = (k[:3].repeat(1, 3, 1), k, v, None, None, torch.arange(10), None)
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
