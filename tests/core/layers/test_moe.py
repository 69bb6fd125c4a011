from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from sensorium.core.layers.linear import Linear, Weights
from sensorium.core.layers.moe import ExpertLinear, LatentMoE, Router

D, M, INNER, E, K = 20, 10, 6, 7, 3


def _moe(dtype: torch.dtype = torch.float32) -> LatentMoE:
    router = Router(D, E, K, multiplier=2.0, scaling=1.5)
    moe = LatentMoE(
        router, width=D, num_experts=E, expert_width=M, inner_width=INNER, eps=1e-5, post_eps=1e-8
    )
    generator = torch.Generator().manual_seed(0)
    for parameter in moe.parameters():
        parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
        if not getattr(parameter, "keep_dtype", False):
            parameter.data = parameter.to(dtype)
    return moe


def _tokens(number: int) -> Tensor:
    return torch.randn(number, D, generator=torch.Generator().manual_seed(1))


def _norm(x: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def _pack(module: nn.Module) -> None:
    for child in list(module.modules()):
        if isinstance(child, Linear | ExpertLinear):
            child.pack()


def _by_hand(moe: LatentMoE, x: Tensor) -> Iterator[Tensor]:
    """One token after the other, in float64, straight from the formulas."""
    weights = {name: p.double() for name, p in moe.named_parameters()}
    for token in x.double():
        scores = (2.0 * weights["router.weight"] @ token).sigmoid()
        chosen = (scores + weights["router.bias"]).topk(K).indices
        shares = 1.5 * scores[chosen] / scores[chosen].sum()
        z = _norm(weights["enter.weight"] @ token, 1e-5) * (1 + weights["enter_norm.weight"])
        total = torch.zeros(M, dtype=torch.float64)
        for expert, share in zip(chosen.tolist(), shares, strict=True):
            gate, up = (weights["gate_up.weight"][expert] @ z).chunk(2)
            out = weights["down.weight"][expert] @ (gate * gate.sigmoid() * up)
            total += share * _norm(out * (1 + weights["expert_norm.weight"]), 1e-8)
        yield weights["leave.weight"] @ total


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 2, 33])
def test_mixture_follows_its_formulas(num_tokens: int, packed: bool) -> None:
    moe, x = _moe(), _tokens(num_tokens)
    expected = torch.stack(list(_by_hand(moe, x))).float()
    if packed:
        _pack(moe)
    torch.testing.assert_close(moe(x), expected, atol=1e-4, rtol=1e-4)


def test_packed_experts_in_bfloat16_are_near_the_exact_result() -> None:
    moe, x = _moe(torch.bfloat16), _tokens(9).bfloat16()
    expected = torch.stack(list(_by_hand(moe, x))).float()
    _pack(moe)
    found = moe(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=5e-2, rtol=2e-2)


def test_observer_is_told_the_choice_that_was_made() -> None:
    moe, x = _moe(), _tokens(4)
    seen: list[tuple[Tensor, Tensor]] = []
    moe(x, lambda logits, expert_ids: seen.append((logits, expert_ids)))
    ((logits, expert_ids),) = seen
    torch.testing.assert_close(logits, 2.0 * x @ moe.router.weight.T)
    scores = logits.sigmoid() + moe.router.bias
    assert torch.equal(expert_ids.sort().values, scores.topk(K).indices.sort().values)


def test_router_stays_in_float32_beside_bfloat16_matrices() -> None:
    router = _moe(torch.bfloat16).router
    assert router.weight.dtype == router.bias.dtype == torch.float32
    for parameter in router.parameters():
        assert parameter.keep_dtype  # type: ignore[attr-defined]  # for core/weights.py


@pytest.mark.parametrize(
    ("weights", "tolerance"), [("same", 0.005), ("auto", 0.005), ("int8", 0.02), ("int4", 0.15)]
)
def test_experts_may_be_kept_in_fewer_bits(weights: Weights, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(0)
    experts = ExpertLinear(3, 64, 32).to(torch.bfloat16)
    experts.weight.copy_(torch.randn(3, 32, 64, generator=generator) / 8)
    rows = torch.randn(9, 64, generator=generator).bfloat16()
    counts = torch.tensor([1, 0, 8])
    exact = torch.cat(
        [
            rows[:1].float() @ experts.weight[0].float().T,
            rows[1:].float() @ experts.weight[2].float().T,
        ]
    )
    experts.pack(weights)
    away = (experts(rows, counts).float() - exact).square().mean().sqrt() / exact.std()
    assert tolerance / 20 < away < tolerance
