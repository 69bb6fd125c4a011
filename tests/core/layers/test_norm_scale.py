import torch

from sensorium.core.layers.norm_scale import NormScale


def _norm_scale(offset: float, dtype: torch.dtype = torch.float32) -> NormScale:
    norm = NormScale(3, 1e-5, offset=offset).to(dtype)
    norm.weight.copy_(torch.tensor([-0.5, 0.0, 0.3]))
    return norm


def test_a_centred_scale_is_a_distance_from_one() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0]])
    normed = x / (x.square().mean() + 1e-5).sqrt()
    torch.testing.assert_close(_norm_scale(1)(x), normed * torch.tensor([0.5, 1.0, 1.3]))
    torch.testing.assert_close(_norm_scale(0)(x), normed * torch.tensor([-0.5, 0.0, 0.3]))


def test_a_bfloat16_scale_is_formed_in_bfloat16() -> None:
    norm = _norm_scale(1, torch.bfloat16)
    assert norm.scale.dtype == torch.bfloat16
    assert torch.equal(norm.scale_in_float32, norm.scale.float())
    assert norm.scale_in_float32[2] == 1.296875  # 1 + 0.3 as bfloat16 has it


def test_a_float32_stream_is_normed_in_float32() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0001]])
    normed = x / (x.square().mean() + 1e-5).sqrt()
    norm = _norm_scale(1, torch.bfloat16)
    torch.testing.assert_close(norm(x), normed * norm.scale.float())
