"""Every op in plain torch: the specification that other kernels must match.

Shapes: T tokens, S sequences, D width, H query heads, Hk KV heads, Dh head width, L context
length, F inner width of the feed-forward. A KV cache is flat, [rows, 2, Hk, Dh], keys before
values; the rows of a block follow each other. Block 0 is never written and stays zero, so it stands
in wherever a table has nothing to point at. A float8 cache has a scale per vector, [rows, 2, Hk,
1], else the scale is None.
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
    kv_cache: torch.Tensor,
    kv_scale: torch.Tensor | None,
) -> torch.Tensor:
    """Rotate queries and keys (RoFormer, Su et al., 2021) and store keys and values.

    `qkv` is [T, H + 2 Hk, Dh], queries before keys before values. Pairs are (i, i + Dh/2), as in
    Hugging Face's checkpoints; `cos` and `sin` are [T, 1, Dh] with the sign of the rotation in the
    first half of `sin`. `slot_mapping` [T] names the cache row of each token. Returns the rotated
    queries, [T, H, Dh]; writes the cache and its scale.
    """
    num_kv_heads, head_dim = kv_cache.shape[2:]
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    qk, v = qkv[:, : num_heads + num_kv_heads], qkv[:, num_heads + num_kv_heads :]
    rotated = torch.addcmul(qk * cos, qk.roll(head_dim // 2, dims=-1), sin)
    store(torch.stack((rotated[:, num_heads:], v), dim=1), slot_mapping, kv_cache, kv_scale)
    return rotated[:, :num_heads]


def decode_attention(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    kv_scale: torch.Tensor | None,
    block_tables: torch.Tensor,
    mask: torch.Tensor,
) -> torch.Tensor:
    """Attend from one token of each sequence to its own cached rows.

    `q` is [S, H, Dh]; `block_tables` [S, B] holds blocks in order of position, padded with block 0;
    `mask` [S, L], in the type of `q`, is 0 where a row of these blocks is seen and -inf elsewhere.
    Returns [S, H · Dh]. The query heads that share a KV head take the place of query positions, so
    no key is copied for them.
    """
    (S, H, Dh), L, Hk = q.shape, mask.shape[1], kv_cache.shape[2]
    block_size = L // block_tables.shape[1]
    kv = load(kv_cache, kv_scale, block_tables.flatten(), block_size, q.dtype)
    k, v = kv.view(S, L, 2, Hk, Dh).permute(2, 0, 3, 1, 4).unbind(0)  # [S, Hk, L, Dh] each
    out = F.scaled_dot_product_attention(
        q.view(S, Hk, H // Hk, Dh), k, v, attn_mask=mask[:, None, None]
    )
    return out.reshape(S, H * Dh)


def prefill_attention(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    kv_scale: torch.Tensor | None,
    blocks: torch.Tensor,
    block_size: int,
    first_row: int,
    end_row: int,
    window: int | None,
) -> torch.Tensor:
    """Attend from the last T positions of one sequence, causally.

    `q` is [T, H, Dh]. Counted from the first row of `blocks` [B], rows `first_row` … `end_row` are
    consecutive positions up to the last query's. A query sees the last `window` of them up to its
    own (None: all). Returns [T, H · Dh].
    """
    T, L = q.shape[0], end_row - first_row
    kv = load(kv_cache, kv_scale, blocks, block_size, q.dtype)[first_row:end_row]
    k, v = kv.permute(1, 2, 0, 3).unbind(0)  # [Hk, L, Dh] each
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
    """Write [T, 2, Hk, Dh] to its cache rows, each vector scaled to its largest value in float8."""
    if scale is not None:
        largest = x.abs().amax(-1, keepdim=True).float()
        # The scale as it will be read: rounded, and never 0.
        step = (largest / FLOAT8_MAX).clamp_min(1e-30).to(scale.dtype)  # [T, 2, Hk, 1]
        scale.index_copy_(0, slot_mapping, step)
        x = (x.float() / step.float()).clamp(-FLOAT8_MAX, FLOAT8_MAX)
    x = x.to(cache.dtype)
    if cache.dtype.itemsize == 1:
        cache, x = cache.view(torch.uint8), x.view(torch.uint8)
    cache.index_copy_(0, slot_mapping, x)


def load(
    cache: torch.Tensor,
    scale: torch.Tensor | None,
    blocks: torch.Tensor,
    block_size: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Read the rows of blocks [B] → [B · block_size, 2, Hk, Dh] in `dtype`."""
    if scale is None:
        return _rows(cache, blocks, block_size).to(dtype)
    x = _rows(cache.view(torch.uint8), blocks, block_size).view(cache.dtype)
    return x.to(dtype) * _rows(scale, blocks, block_size).to(dtype)


def _rows(x: torch.Tensor, blocks: torch.Tensor, block_size: int) -> torch.Tensor:
    """Gather by whole blocks: one copy of some kilobytes each."""
    return x.view(len(x) // block_size, -1).index_select(0, blocks).view(-1, *x.shape[1:])
