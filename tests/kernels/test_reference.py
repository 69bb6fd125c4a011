"""The ops against the formulas they state, in float64 and at awkward shapes."""

import pytest
import torch

from sensorium import kernels

H, HK, DH = 6, 2, 8
BLOCK, ROWS = 4, 80


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
    cache = torch.full((ROWS, 2, HK, DH), torch.nan)
    rows = torch.tensor([9, 4, 70])
    q = kernels.rope_and_store(qkv, cos, sin, rows, cache, None)
    first, second = qkv.view(T, -1, 2, DH // 2).unbind(2)
    turned = torch.view_as_complex(torch.stack([first, second], -1).contiguous()) * torch.polar(
        torch.ones_like(angle), angle
    ).unsqueeze(1)
    expected = torch.cat([turned.real, turned.imag], -1)
    torch.testing.assert_close(q, expected[:, :H])
    torch.testing.assert_close(cache[rows, 0], expected[:, H : H + HK])
    torch.testing.assert_close(cache[rows, 1], qkv[:, H + HK :])
    untouched = torch.ones(ROWS, dtype=torch.bool).index_fill(0, rows, False)
    assert cache[untouched].isnan().all()


def _blocks(count: int) -> torch.Tensor:
    """Draw blocks, none twice and never block 0."""
    order = torch.randperm(ROWS // BLOCK - 1, generator=torch.Generator().manual_seed(3))
    return order[:count] + 1


def _rows(blocks: torch.Tensor) -> torch.Tensor:
    return (blocks[:, None] * BLOCK + torch.arange(BLOCK)).flatten()


def _poisoned_cache(blocks: torch.Tensor) -> torch.Tensor:
    """A cache in which the blocks nobody asks for are NaN."""
    cache = torch.full((ROWS, 2, HK, DH), torch.nan)
    cache[:BLOCK] = 0.0
    rows = _rows(blocks)
    cache[rows] = _random(len(rows), 2, HK, DH)
    return cache


def test_decode_attends_to_its_own_rows_only() -> None:
    blocks = _blocks(15)
    cache = _poisoned_cache(blocks)
    tables = torch.zeros(3, 9, dtype=torch.long)
    tables[0, :1], tables[1, :5], tables[2] = blocks[:1], blocks[1:6], blocks[6:]
    seen = ((0, 1), (0, 17), (2, 33))  # the last begins inside a block, as a window may
    mask = torch.full((3, 36), -torch.inf)
    for i, (first, end) in enumerate(seen):
        mask[i, first:end] = 0
    q = _random(3, H, DH, seed=2)
    out = kernels.decode_attention(q, cache, None, tables, mask)
    for i, (first, end) in enumerate(seen):
        k, v = cache[_rows(tables[i])[first:end]].unbind(1)
        torch.testing.assert_close(out[i], _attend(q[i], k, v))


@pytest.mark.parametrize(("tokens", "first", "end"), [(1, 0, 1), (7, 0, 7), (13, 3, 61)])
def test_prefill_is_causal_after_its_context(tokens: int, first: int, end: int) -> None:
    blocks = _blocks(-(-end // BLOCK))
    cache = _poisoned_cache(blocks)
    q = _random(tokens, H, DH, seed=2)
    out = kernels.prefill_attention(q, cache, None, blocks, BLOCK, first, end, None)
    k, v = cache[_rows(blocks)[first:end]].unbind(1)
    for i in range(tokens):
        seen = end - first - tokens + i + 1
        torch.testing.assert_close(out[i], _attend(q[i], k[:seen], v[:seen]))


def test_rows_take_the_place_of_tokens() -> None:
    x, rows = _random(5, 3), _random(2, 3, seed=1)
    before = x.clone()
    kernels.write_slots(x, torch.tensor([4, 1]), rows.double())
    assert torch.equal(x[[4, 1]], rows)
    assert torch.equal(x[[0, 2, 3]], before[[0, 2, 3]])
