import pytest
import torch

from sensorium.core.layers.linear import Linear


@pytest.mark.parametrize("rows", [1, 3, 16, 63])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-1)], ids=str
)
def test_packed_weight_multiplies_like_the_plain_one(
    rows: int, dtype: torch.dtype, tolerance: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    linear = Linear(37, 53).to(dtype)
    linear.weight.copy_(torch.randn(53, 37, generator=generator))
    x = torch.randn(rows, 37, generator=generator).to(dtype)
    expected = x.float() @ linear.weight.float().T
    plain = linear(x)
    linear.pack()
    for y in (plain, linear(x)):
        assert y.dtype == dtype
        torch.testing.assert_close(y.float(), expected, atol=tolerance, rtol=0)
