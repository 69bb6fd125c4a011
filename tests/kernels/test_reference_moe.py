"""The ops of a mixture of experts against the formulas they state, one pair at a time."""

import pytest
import torch
from torch import Tensor

from sensorium import kernels

E, K, M, INNER = 7, 3, 10, 6


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _choose(num_tokens: int) -> Tensor:
    """Draw K different experts for each token."""
    return _random(num_tokens, E, seed=5).topk(K).indices


def test_router_weighs_by_score_divided_by_sum_times_scaling() -> None:
    x, weight, bias = _random(5, 8), _random(E, 8, seed=1), torch.zeros(E)
    logits, expert_ids, weights = kernels.route(x, weight, bias, K, 0.5, 1.5)
    expected = 0.5 * x.double() @ weight.double().T
    torch.testing.assert_close(logits, expected.float())
    for t in range(5):
        scores = expected[t].sigmoid()
        best = scores.argsort(descending=True)[:K]
        assert set(expert_ids[t].tolist()) == set(best.tolist())
        chosen = scores[expert_ids[t]]
        torch.testing.assert_close(weights[t], (1.5 * chosen / chosen.sum()).float())


def test_router_bias_decides_who_is_chosen_but_not_with_what_weight() -> None:
    x, weight = _random(1, 8), torch.zeros(E, 8)
    bias = torch.tensor([0.0, 0.3, 0.0, 0.0, 0.2, 0.0, 0.1])
    _, expert_ids, weights = kernels.route(x, weight, bias, K, 1.0, 1.0)
    assert sorted(expert_ids[0].tolist()) == [1, 4, 6]
    torch.testing.assert_close(weights[0], torch.full((K,), 1 / K))


def test_router_multiplies_in_float32_whatever_the_rows_are_in() -> None:
    x, weight = _random(4, 512).bfloat16(), _random(E, 512, seed=1)
    logits, _, weights = kernels.route(x, weight, torch.zeros(E), K, 1.0, 1.0)
    assert logits.dtype == weights.dtype == torch.float32
    expected = (x.double() @ weight.double().T).float()
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_router_survives_scores_that_vanish() -> None:
    x, weight = torch.ones(1, 1), torch.full((E, 1), -1e4)
    weights = kernels.route(x, weight, torch.zeros(E), K, 1.0, 1.0)[2]
    assert torch.equal(weights, torch.zeros(1, K))


def test_dispatch_brings_the_rows_of_an_expert_together() -> None:
    x = torch.tensor([[10.0], [11.0]])
    rows, pairs, counts = kernels.dispatch_experts(x, torch.tensor([[2, 0], [0, 1]]), 3)
    assert rows.flatten().tolist() == [10, 11, 11, 10]
    assert pairs.tolist() == [1, 2, 3, 0]
    assert counts.tolist() == [2, 1, 1]


@pytest.mark.parametrize("num_tokens", [1, 2, 17, 63])
def test_experts_compute_what_each_pair_says_alone(num_tokens: int) -> None:
    x, expert_ids = _random(num_tokens, M), _choose(num_tokens)
    gate_up, down = _random(E, 2 * INNER, M, seed=1), _random(E, M, INNER, seed=2)
    scale, weights = _random(M, seed=3) + 1, _random(num_tokens, K, seed=4)

    rows, pairs, counts = kernels.dispatch_experts(x, expert_ids, E)
    inner = kernels.silu_mul(kernels.grouped_matmul(rows, gate_up.mT, counts))
    outputs = kernels.grouped_matmul(inner, down.mT, counts)
    found = kernels.combine_experts(outputs, pairs, weights, scale, 1e-8)

    expected = torch.zeros(num_tokens, M, dtype=torch.float64)
    for t in range(num_tokens):
        for k, e in enumerate(expert_ids[t].tolist()):
            gate, up = (gate_up[e].double() @ x[t].double()).chunk(2)
            output = down[e].double() @ (gate * gate.sigmoid() * up) * scale.double()
            normed = output / (output.square().mean() + 1e-8).sqrt()
            expected[t] += weights[t, k].double() * normed
    torch.testing.assert_close(found, expected.float(), atol=2e-5, rtol=1e-5)


def test_scale_of_experts_is_applied_and_rounded_before_the_norm() -> None:
    outputs, pairs = _random(2, 64).bfloat16(), torch.tensor([1, 0])
    scale, weights = (1 + 0.3 * _random(64, seed=1)).bfloat16(), torch.tensor([[0.0, 1.0]])
    found = kernels.combine_experts(outputs, pairs, weights, scale, 1e-8)
    scaled = (outputs[0].float() * scale.float()).bfloat16().double()
    normed = scaled / (scaled.square().mean() + 1e-8).sqrt()
    assert torch.equal(found[0], normed.float().bfloat16())


def test_a_token_does_not_change_with_its_neighbours() -> None:
    outputs, expert_ids = _random(40, K, M), _choose(40)
    weights, scale = _random(40, K, seed=4), torch.ones(M)

    def combined(tokens: slice) -> Tensor:
        ids = expert_ids[tokens]
        pairs = ids.flatten().argsort(stable=True)
        rows = outputs[tokens].flatten(0, 1)[pairs]
        return kernels.combine_experts(rows, pairs, weights[tokens], scale, 1e-8)

    together = combined(slice(None))
    for t in range(40):
        assert torch.equal(together[t : t + 1], combined(slice(t, t + 1)))
