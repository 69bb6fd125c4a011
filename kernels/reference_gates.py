"""Ops of layers with gates and norms around every branch, in plain torch: see reference.py.

Shapes: T tokens, D width, H query heads, Hk KV heads, Dh head width, R rows to sample, V
vocabulary. A norm of a row x is x / √(mean(x²) + eps), in float32.
"""

import torch
import torch.nn.functional as F

from sensorium.kernels.reference import store


def norm_rope_and_store(
    qkv: torch.Tensor,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    q_factor: float,
    eps: float,
    slot_mapping: torch.Tensor,
    kv_cache: torch.Tensor,
    kv_scale: torch.Tensor | None,
) -> torch.Tensor:
    """Norm each query and key, multiply queries by `q_factor`, rotate, store keys and values.

    Like `reference.rope_and_store`, except that `cos` and `sin` are float32, and None in layers
    without positions; all that happens to a query or key is in float32 and rounded once.
    """
    num_kv_heads, head_dim = kv_cache.shape[2:]
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    qk = qkv[:, : num_heads + num_kv_heads].float()  # [T, H + Hk, Dh]
    normed = F.rms_norm(qk, (head_dim,), None, eps)
    normed[:, :num_heads].mul_(q_factor)
    if cos is not None and sin is not None:
        normed = torch.addcmul(normed * cos, normed.roll(head_dim // 2, dims=-1), sin)
    normed = normed.to(qkv.dtype)
    k, v = normed[:, num_heads:], qkv[:, num_heads + num_kv_heads :]
    store(torch.stack((k, v), dim=1), slot_mapping, kv_cache, kv_scale)
    return normed[:, :num_heads]


def norm_heads_and_gate(
    attended: torch.Tensor, gate: torch.Tensor, head_dim: int, eps: float
) -> torch.Tensor:
    """Norm each head of what attention returned, then multiply by sigmoid(gate).

    Both are [T, H · Dh], and so is the result.
    """
    heads = attended.view(len(attended), -1, head_dim)  # [T, H, Dh]
    heads = F.rms_norm(heads, (head_dim,), None, eps)
    return heads.flatten(1).mul_(gate.sigmoid())


def mix_and_norm(
    residual: torch.Tensor,
    branch: torch.Tensor,
    branch_scale: torch.Tensor | None,
    branch_eps: float,
    alpha: torch.Tensor,
    beta: torch.Tensor,
    scale: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """End one sub-layer and begin the next: total = alpha · residual + beta · norm(branch).

    `residual` and `branch` are [T, D]; `alpha`, `beta` and `scale` [D] are float32. Where there is
    a `branch_scale` [D], of the branch's type, the branch is multiplied by it before it is normed.
    Returns (norm(total) · `scale` in the branch's type, total in the residual's type).
    """
    D = residual.shape[-1]
    if branch_scale is not None:
        branch = branch * branch_scale
    normed = F.rms_norm(branch, (D,), None, branch_eps)
    total = torch.addcmul(residual * alpha, normed, beta).to(residual.dtype)
    return F.rms_norm(total.float(), (D,), scale, eps).to(branch.dtype), total


def soft_cap(x: torch.Tensor, multiplier: float, cap: float) -> torch.Tensor:
    """Bend `multiplier` · x into (-cap, cap): [R, V] → [R, V] in float32."""
    return x.float().mul(multiplier / cap).tanh_().mul_(cap)
