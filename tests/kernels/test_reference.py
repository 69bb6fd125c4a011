"""The ops against the formulas they state, in float64 and at awkward shapes."""

import pytest
import torch

from sensorium import kernels

H, HK, DH = 6, 2, 8
ROWS = 80


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One query [H, Dh] over keys and values [L, Hk, Dh], head by head → [H · Dh]."""
    heads = []
    for h in range(H):
        scores = k[:, h // (H // HK)].double() @ q[h].double() / DH**0.5
        heads.append(scores.softmax(0) @ v[:, h // (H // HK)].double())
    return torch.cat(heads).float()


@pytest.mark.parametrize("rows", [1, 63, 127])
def test_rms_norm(rows: int) -> None:
    x, weight = _random(rows, 31), _random(31, seed=1)
    root = (x.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(kernels.rms_norm(x, weight, 1e-5), (x / root * weight).float())


def test_add_rms_norm_returns_the_norm_and_the_sum() -> None:
    x, residual, weight = _random(5, 31), _random(5, 31, seed=1), _random(31, seed=2)
    normed, total = kernels.add_rms_norm(x, residual, weight, 1e-5)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(normed, kernels.rms_norm(x + residual, weight, 1e-5))


def test_silu_mul_gates_the_second_half_by_the_first() -> None:
    gate, up = _random(7, 13), _random(7, 13, seed=1)
    expected = gate * gate.sigmoid() * up
    torch.testing.assert_close(kernels.silu_mul(torch.cat([gate, up], -1)), expected)


def test_rope_rotates_pairs_and_stores_where_told() -> None:
    T = 3
    qkv, angle = _random(T, H + 2 * HK, DH), _random(T, DH // 2, seed=1)
    cos = torch.cat([angle.cos(), angle.cos()], -1)[:, None]
    sin = torch.cat([-angle.sin(), angle.sin()], -1)[:, None]
    k_cache, v_cache = torch.full((2, ROWS, HK, DH), torch.nan)
    rows = torch.tensor([9, 4, 70])
    q = kernels.rope_and_store(qkv, cos, sin, rows, k_cache, v_cache, None, None)
    first, second = qkv.view(T, -1, 2, DH // 2).unbind(2)
    turned = torch.view_as_complex(torch.stack([first, second], -1).contiguous()) * torch.polar(
        torch.ones_like(angle), angle
    ).unsqueeze(1)
    expected = torch.cat([turned.real, turned.imag], -1)
    torch.testing.assert_close(q, expected[:, :H])
    torch.testing.assert_close(k_cache[rows], expected[:, H : H + HK])
    torch.testing.assert_close(v_cache[rows], qkv[:, H + HK :])
    untouched = torch.ones(ROWS, dtype=torch.bool).index_fill(0, rows, False)
    assert k_cache[untouched].isnan().all()


def test_decode_attends_to_its_own_rows_only() -> None:
    k_cache, v_cache = torch.full((2, ROWS, HK, DH), torch.nan)
    lengths = (1, 17, 33)
    kv_rows = torch.zeros(3, 33, dtype=torch.long)
    order = torch.randperm(ROWS - 1, generator=torch.Generator().manual_seed(3)) + 1
    for i, length in enumerate(lengths):
        kv_rows[i, :length] = order[sum(lengths[:i]) :][:length]
    used = kv_rows[kv_rows > 0]
    k_cache[used], v_cache[used] = _random(len(used), HK, DH), _random(len(used), HK, DH, seed=1)
    k_cache[0] = v_cache[0] = 0.0
    q = _random(3, H, DH, seed=2)
    out = kernels.decode_attention(q, k_cache, v_cache, None, None, kv_rows, torch.tensor(lengths))
    for i, length in enumerate(lengths):
        rows = kv_rows[i, :length]
        torch.testing.assert_close(out[i], _attend(q[i], k_cache[rows], v_cache[rows]))


@pytest.mark.parametrize(("tokens", "context"), [(1, 1), (7, 7), (13, 61)])
def test_prefill_is_causal_after_its_context(tokens: int, context: int) -> None:
    k_cache, v_cache = torch.full((2, ROWS, HK, DH), torch.nan)
    kv_rows = torch.randperm(ROWS, generator=torch.Generator().manual_seed(3))[:context]
    k_cache[kv_rows], v_cache[kv_rows] = _random(context, HK, DH), _random(context, HK, DH, seed=1)
    q = _random(tokens, H, DH, seed=2)
    out = kernels.prefill_attention(q, k_cache, v_cache, None, None, kv_rows, None)
    for i in range(tokens):
        rows = kv_rows[: context - tokens + i + 1]
        torch.testing.assert_close(out[i], _attend(q[i], k_cache[rows], v_cache[rows]))


def test_rows_take_the_place_of_tokens() -> None:
    x, rows = _random(5, 3), _random(2, 3, seed=1)
    before = x.clone()
    kernels.write_slots(x, torch.tensor([4, 1]), rows.double())
    assert torch.equal(x[[4, 1]], rows)
    assert torch.equal(x[[0, 2, 3]], before[[0, 2, 3]])
