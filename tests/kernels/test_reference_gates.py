"""The ops of gated layers against the formulas they state, in float64 and at awkward shapes."""

import pytest
import torch
from torch import Tensor

from sensorium import kernels

H, HK, DH = 6, 2, 8
ROWS = 40


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _norm(x: Tensor, eps: float) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def _angles(num_tokens: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    angle = _random(num_tokens, DH // 2, seed=1)
    cos = torch.cat([angle.cos(), angle.cos()], -1)[:, None]
    sin = torch.cat([-angle.sin(), angle.sin()], -1)[:, None]
    return angle, (cos, sin)


@pytest.mark.parametrize("rotates", [True, False])
def test_queries_and_keys_are_normed_scaled_and_rotated(rotates: bool) -> None:
    T = 3
    qkv = 1e-2 * _random(T, H + 2 * HK, DH)  # so small that eps counts
    angle, (cos, sin) = _angles(T)
    cache = torch.full((ROWS, 2, HK, DH), torch.nan)
    rows = torch.tensor([9, 4, 31])
    q = kernels.norm_rope_and_store(
        qkv,
        *((cos, sin) if rotates else (None, None)),
        1.75,
        1e-5,
        rows,
        cache,
        None,
    )
    expected = _norm(qkv, 1e-5)
    if rotates:
        pairs = torch.complex(*expected.chunk(2, dim=-1))
        pairs = pairs * torch.polar(torch.ones_like(angle), angle)[:, None]
        expected = torch.cat([pairs.real, pairs.imag], -1)
    torch.testing.assert_close(q, (1.75 * expected[:, :H]).float())
    torch.testing.assert_close(cache[rows, 0], expected[:, H : H + HK].float())
    assert torch.equal(cache[rows, 1], qkv[:, H + HK :])
    untouched = torch.ones(ROWS, dtype=torch.bool).index_fill(0, rows, False)
    assert cache[untouched].isnan().all()


def test_a_query_in_bfloat16_is_rounded_once() -> None:
    qkv = _random(2, H + 2 * HK, DH).bfloat16()
    _, (cos, sin) = _angles(2)
    cache = torch.zeros(ROWS, 2, HK, DH)
    rows = torch.tensor([1, 2])
    exact = kernels.norm_rope_and_store(qkv.float(), cos, sin, 1.75, 1e-5, rows, cache, None)
    q = kernels.norm_rope_and_store(qkv, cos, sin, 1.75, 1e-5, rows, cache.bfloat16(), None)
    assert torch.equal(q, exact.bfloat16())


def test_heads_are_normed_apart_and_gated() -> None:
    attended, gate = _random(5, H * DH), _random(5, H * DH, seed=1)
    attended[:, :DH] *= 100  # a loud head doesn't quieten the others
    found = kernels.norm_heads_and_gate(attended, gate, DH, 1e-5)
    heads = _norm(attended.view(5, H, DH), 1e-5).flatten(1)
    torch.testing.assert_close(found, (heads * gate.double().sigmoid()).float())


@pytest.mark.parametrize("rows", [1, 63])
@pytest.mark.parametrize("scaled", [True, False])
def test_a_branch_is_normed_and_weighed_against_the_stream(rows: int, scaled: bool) -> None:
    D = 31
    residual, branch = _random(rows, D), 1e-4 * _random(rows, D, seed=1)  # so small that eps counts
    branch_scale = 1 + 0.3 * _random(D, seed=2) if scaled else None
    alpha, beta, scale = _random(D, seed=3), _random(D, seed=4), _random(D, seed=5)
    normed, total = kernels.mix_and_norm(
        residual, branch, branch_scale, 1e-8, alpha, beta, scale, 1e-5
    )
    factor = torch.ones(D) if branch_scale is None else branch_scale
    expected = alpha * residual.double() + beta * _norm(branch * factor.double(), 1e-8)
    torch.testing.assert_close(total, expected.float())
    torch.testing.assert_close(normed, (_norm(expected, 1e-5) * scale).float())


@pytest.mark.parametrize("stream", [torch.float32, torch.bfloat16], ids=str)
def test_a_bfloat16_branch_is_rounded_where_training_rounds(stream: torch.dtype) -> None:
    D = 64
    residual, branch = _random(3, D).to(stream), _random(3, D, seed=1).bfloat16()
    branch_scale = (1 + 0.3 * _random(D, seed=2)).bfloat16()
    alpha, beta, scale = _random(D, seed=3), _random(D, seed=4), _random(D, seed=5)
    normed, total = kernels.mix_and_norm(
        residual, branch, branch_scale, 1e-8, alpha, beta, scale, 1e-5
    )
    scaled = (branch.float() * branch_scale.float()).bfloat16()
    term = _norm(scaled, 1e-8).float().bfloat16()
    expected = (alpha * residual.float() + beta * term.float()).to(stream)
    assert (total.dtype, normed.dtype) == (stream, torch.bfloat16)
    torch.testing.assert_close(total, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(normed, (_norm(total, 1e-5) * scale).float().bfloat16())


def test_soft_cap_bends_what_it_multiplied() -> None:
    x = torch.tensor([[-1e6, -3.0, 0.0, 0.1, 50.0, 1e6]])
    found = kernels.soft_cap(x, 2.0, 20.0)
    torch.testing.assert_close(found, (20 * (2 * x.double() / 20).tanh()).float())
    assert kernels.soft_cap(x.bfloat16(), 2.0, 20.0).dtype == torch.float32
