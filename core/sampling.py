"""Logits → token ids."""

import torch
from torch import Tensor

from sensorium.core.api import SamplingParams
from sensorium.core.span import SequenceFault

MAX_LOGPROBS = 20
"""Most of the likeliest tokens whose log probabilities may be asked for at each position."""

_CANDIDATES = 512
"""Where the search for a nucleus begins: sorting 49 k logits takes milliseconds, 512 don't."""


def check_sampling(params: SamplingParams) -> None:
    """Raise SequenceFault for values that mean nothing."""
    rules = {
        "max_tokens must be at least 1": params.max_tokens >= 1,
        "temperature must be 0 or more": 0 <= params.temperature < float("inf"),
        "top_p must be above 0, at most 1": 0 < params.top_p <= 1,
        "top_k must be 0 (off) or more": params.top_k >= 0,
        "min_p must be from 0 to 1": 0 <= params.min_p <= 1,
        f"num_logprobs must be from 0 to {MAX_LOGPROBS}": (
            params.num_logprobs is None or 0 <= params.num_logprobs <= MAX_LOGPROBS
        ),
    }
    for rule, holds in rules.items():
        if not holds:
            raise SequenceFault("bad_request", rule)


def greedy(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best id of each row of [R, V], and whether its logit is finite: [R] each."""
    best, ids = logits.max(dim=-1)  # max carries a NaN through
    return ids, best.isfinite()


def draw(logits: Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    """Draw one id from `logits` [V] at a temperature above 0.

    In this order: temperature, then the `top_k` likeliest, of these those less likely than `min_p`
    times the likeliest dropped, of the rest the smallest set of probability `top_p` (nucleus
    sampling, Holtzman et al., 2020).
    """
    # float32: bfloat16 has too few steps near 1 for cumulative sums over a vocabulary
    probabilities = (logits.float() / params.temperature).softmax(-1)  # [V]
    if params.top_k == 0 and params.top_p == 1 and params.min_p == 0:
        return _pick(probabilities, generator)
    kept, ids = _likeliest(probabilities, params)
    if params.top_k:
        kept = kept[: params.top_k]
        kept = kept / kept.sum()
    kept = kept[kept >= params.min_p * kept[0]]
    kept = kept / kept.sum()
    before = kept.cumsum(0) - kept
    kept = kept[before < params.top_p]
    return int(ids[_pick(kept, generator)])


def _pick(weights: Tensor, generator: torch.Generator) -> int:
    """Draw an index in proportion to `weights` [n], by inverting their cumulative sum.

    `torch.multinomial` draws a number per weight: 1 ms for 49 k of them, where this takes 0.1 ms.
    """
    sums = weights.cumsum(0, dtype=torch.float64)  # float32 would lose the last of a long tail
    point = torch.rand(1, dtype=torch.float64, device=sums.device, generator=generator) * sums[-1]
    place = torch.searchsorted(sums, point, right=True)  # right: never an index of weight 0
    return min(int(place), len(weights) - 1)


def _likeliest(probabilities: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Return the likeliest candidates in falling order: enough of them for every filter."""
    V = len(probabilities)
    count = min(V, params.top_k or _CANDIDATES)
    while True:
        kept, ids = probabilities.topk(count)
        reaches_p = params.top_p < 1 and float(kept.sum()) >= params.top_p
        reaches_min = float(kept[-1]) < params.min_p * float(kept[0])
        if params.top_k or count == V or reaches_p or reaches_min:
            return kept, ids
        count = min(V, count * 8) if count == _CANDIDATES else V
