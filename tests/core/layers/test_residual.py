import torch

from sensorium.core.layers.norm_scale import NormScale
from sensorium.core.layers.residual import GatedResidual


def _gated(gate: list[float]) -> GatedResidual:
    residual = GatedResidual(len(gate), 0.3)
    residual.gate.copy_(torch.tensor(gate))
    return residual


def test_squares_of_both_shares_add_up_to_one_until_little_is_left_of_the_stream() -> None:
    alpha, beta = _gated([-3.0, 0.0, 0.5, 3.0]).alpha_beta()
    exact = torch.tensor([-3.0, 0.0, 0.5, 3.0], dtype=torch.float64).div(0.3).sigmoid()
    torch.testing.assert_close(beta, exact.float())
    torch.testing.assert_close(alpha[:3], (1 - exact.square()).sqrt().float()[:3])
    torch.testing.assert_close(alpha[3], torch.tensor(1e-3).sqrt())


def test_shares_are_in_float32_beside_bfloat16_matrices() -> None:
    residual = _gated([0.1234567])
    assert residual.gate.keep_dtype  # type: ignore[attr-defined]  # for core/weights.py
    assert {share.dtype for share in residual.alpha_beta()} == {torch.float32}


def test_a_branch_is_mixed_in_and_the_next_one_begun() -> None:
    following = NormScale(2, 1e-5, offset=1)
    following.weight.copy_(torch.tensor([0.0, 1.0]))
    residual = _gated([0.0, 0.0])  # β = 1/2, α = √3/2
    stream, branch = torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0, 4.0]])
    normed, total = residual(
        stream, branch, branch_scale=None, branch_eps=1e-8, following=following
    )
    term = branch / 12.5**0.5
    expected = 0.75**0.5 * stream + 0.5 * term
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(normed, following(total))
