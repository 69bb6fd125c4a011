"""Ops of a mixture of experts in plain torch, as the specification: see reference.py.

Shapes: T tokens, D width, E experts, K experts per token, P = T · K pairs of a token and one of its
experts, M width and I inner width of the experts.
"""

import torch
import torch.nn.functional as F


def route(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    num_chosen: int,
    multiplier: float,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Choose each token's experts by sigmoid scores (DeepSeek-V3, 2024), all in float32.

    `x` is [T, D], `weight` [E, D] and `bias` [E]. The bias decides who is chosen and no more; the
    chosen ones' scores are divided by their sum and multiplied by `scaling`. Returns (`multiplier`
    · x weightᵀ [T, E], expert ids [T, K], their weights [T, K]).
    """
    logits = F.linear(x.float(), weight).mul_(multiplier)
    scores = logits.sigmoid()
    expert_ids = (scores + bias).topk(num_chosen).indices  # [T, K]
    chosen = scores.gather(1, expert_ids)
    return logits, expert_ids, chosen.div_(chosen.sum(-1, keepdim=True).add_(1e-15)).mul_(scaling)


def dispatch_experts(
    x: torch.Tensor, expert_ids: torch.Tensor, num_experts: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Bring the rows of each expert together.

    `x` is [T, M], `expert_ids` [T, K]. Returns (rows [P, M] in order of their expert, the pair t ·
    K + k that each came from [P], how many rows each expert has [E]).

    Example: `expert_ids` [[2, 0], [0, 1]] gives the rows of tokens 0, 1, 1, 0; pairs [1, 2, 3, 0];
    counts [2, 1, 1] for three experts.
    """
    pair_experts = expert_ids.flatten()
    pairs = pair_experts.argsort(stable=True)
    rows = x.index_select(0, pairs.div(expert_ids.shape[1], rounding_mode="floor"))
    return rows, pairs, torch.bincount(pair_experts, minlength=num_experts)


def grouped_matmul(rows: torch.Tensor, weight: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Multiply each expert's rows with its own matrix: [P, in] → [P, out].

    `weight` is [E, in, out]; the first `counts[0]` rows are expert 0's, the next `counts[1]` expert
    1's and so on.
    """
    parts, begin = [], 0
    for expert, count in enumerate(counts.tolist()):
        if count:
            parts.append(torch.mm(rows[begin : begin + count], weight[expert]))
            begin += count
    return torch.cat(parts)


def combine_experts(
    rows: torch.Tensor,
    pairs: torch.Tensor,
    expert_weights: torch.Tensor,
    scale: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    """Scale and norm what the experts made of each row, then add up each token's: [P, M] → [T, M].

    `pairs` [P] are as `dispatch_experts` returns them, `expert_weights` [T, K]; `scale` [M] has the
    type of `rows`. A row is multiplied by `scale` before it is normed. The sum is taken in float32
    and in the order of `expert_weights`, so that it depends on nothing else in the batch.
    """
    M = rows.shape[-1]
    normed = F.rms_norm(rows * scale, (M,), None, eps)
    by_token = torch.empty_like(normed).index_copy_(0, pairs, normed)  # [T · K, M]
    by_token = by_token.view(*expert_weights.shape, M).float()
    return torch.bmm(expert_weights[:, None], by_token)[:, 0].to(rows.dtype)
