"""Every op in plain torch: the specification that other kernels must match.

Shapes: T tokens, S sequences, D width, H query heads, Hk KV heads, Dh head width, L context
length, F inner width of the feed-forward. A KV cache is flat, [rows, Hk, Dh]; row 0 is never
written and stays zero, so it stands in wherever an index has nothing to point at. A float8 cache
has a scale per vector, [rows, Hk, 1], else the scales are None.
"""

import torch
import torch.nn.functional as F


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Scale each row to unit root mean square (Zhang & Sennrich, 2019): [T, D] → [T, D]."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add a sub-layer's output to the residual stream; return (the norm of the sum, the sum)."""
    total = x + residual
    return F.rms_norm(total, (total.shape[-1],), weight, eps), total


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Gate of SwiGLU (Shazeer, 2020): [T, 2F], gate before up → silu(gate) · up, [T, F]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


def write_slots(x: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor) -> None:
    """Put embedding rows [n, D] in the place of tokens: into `x` [T, D] at `slots` [n]."""
    x.index_copy_(0, slots, rows.to(x.dtype))


def rope_and_store(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    slot_mapping: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
) -> torch.Tensor:
    """Rotate queries and keys (RoFormer, Su et al., 2021) and store keys and values.

    `qkv` is [T, H + 2 Hk, Dh], queries before keys before values. Pairs are (i, i + Dh/2), as in
    Hugging Face's checkpoints; `cos` and `sin` are [T, 1, Dh] with the sign of the rotation in the
    first half of `sin`. `slot_mapping` [T] names the cache row of each token. Returns the rotated
    queries, [T, H, Dh]; writes the caches and their scales.
    """
    num_kv_heads, head_dim = k_cache.shape[1:]
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    qk = qkv[:, : num_heads + num_kv_heads]  # [T, H + Hk, Dh]
    rotated = torch.addcmul(qk * cos, qk.roll(head_dim // 2, dims=-1), sin)
    store(rotated[:, num_heads:], slot_mapping, k_cache, k_scale)
    store(qkv[:, num_heads + num_kv_heads :], slot_mapping, v_cache, v_scale)
    return rotated[:, :num_heads].contiguous()


def decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    kv_rows: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """Attend from one token of each sequence to its own cached rows.

    `q` is [S, H, Dh]; row i of `kv_rows` [S, L] holds `lengths[i]` cache rows in order of position,
    padded with 0. Returns [S, H · Dh]. The query heads that share a KV head take the place of query
    positions, so no key is copied.
    """
    S, H, Dh = q.shape
    L, Hk = kv_rows.shape[1], k_cache.shape[1]
    k = load(k_cache, k_scale, kv_rows.flatten(), q.dtype).view(S, L, Hk, Dh).transpose(1, 2)
    v = load(v_cache, v_scale, kv_rows.flatten(), q.dtype).view(S, L, Hk, Dh).transpose(1, 2)
    mask = torch.arange(L, device=q.device) < lengths[:, None]  # [S, L]
    out = F.scaled_dot_product_attention(
        q.view(S, Hk, H // Hk, Dh), k, v, attn_mask=mask[:, None, None, :]
    )
    return out.reshape(S, H * Dh)


def prefill_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    kv_rows: torch.Tensor,
    window: int | None,
) -> torch.Tensor:
    """Attend from the last T positions of one sequence, causally.

    `q` is [T, H, Dh]; `kv_rows` [L] holds the cache rows of consecutive positions up to the last
    query's. A query sees the last `window` of them up to its own (None: all). Returns [T, H · Dh].
    """
    T, L = q.shape[0], kv_rows.shape[0]
    k = load(k_cache, k_scale, kv_rows, q.dtype).transpose(0, 1)  # [Hk, L, Dh]
    v = load(v_cache, v_scale, kv_rows, q.dtype).transpose(0, 1)
    mask = torch.ones(T, L, dtype=torch.bool, device=q.device).tril(L - T)
    if window is not None:
        mask = mask.triu(L - T - window + 1)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None], k[None], v[None], attn_mask=mask, enable_gqa=True
    )
    return out[0].transpose(0, 1).flatten(1)


FLOAT8_MAX = 448.0
"""The largest number of float8 e4m3 (Micikevicius et al., 2022)."""


def store(
    x: torch.Tensor, slot_mapping: torch.Tensor, cache: torch.Tensor, scale: torch.Tensor | None
) -> None:
    """Write vectors [T, Hk, Dh] to their cache rows, each scaled to its largest value in float8."""
    if scale is not None:
        largest = x.abs().amax(-1, keepdim=True).float()
        # The scale as it will be read: rounded, and never 0.
        step = (largest / FLOAT8_MAX).clamp_min(1e-30).to(scale.dtype)  # [T, Hk, 1]
        scale.index_copy_(0, slot_mapping, step)
        x = (x.float() / step.float()).clamp(-FLOAT8_MAX, FLOAT8_MAX)
    x = x.to(cache.dtype)
    if cache.dtype.itemsize == 1:
        cache, x = cache.view(torch.uint8), x.view(torch.uint8)
    cache.index_copy_(0, slot_mapping, x)


def load(
    cache: torch.Tensor, scale: torch.Tensor | None, rows: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """Read vectors from cache rows [N] → [N, Hk, Dh] in `dtype`."""
    if scale is None:
        return cache.index_select(0, rows).to(dtype)
    x = cache.view(torch.uint8).index_select(0, rows).view(cache.dtype)
    return x.to(dtype) * scale.index_select(0, rows).to(dtype)
