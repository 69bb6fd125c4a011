import pytest
import torch
from torch import Tensor

from sensorium.core.layers.groups import Groups, quantized
from sensorium.core.layers.linear import FEW_ROWS, Linear, Weights

IN, OUT = 64, 48


def random_linear(dtype: torch.dtype, out: int = OUT, in_: int = IN) -> Linear:
    """Make a matrix of normal numbers."""
    linear = Linear(in_, out).to(dtype)
    linear.weight.copy_(torch.randn(out, in_, generator=torch.Generator().manual_seed(0)))
    return linear


def inputs(rows: int, dtype: torch.dtype, width: int = IN) -> Tensor:
    """Draw inputs."""
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows)).to(dtype)


def random_groups(bits: int) -> Groups:
    """Make groups whose scale and minimum are no bfloat16 numbers, as in a GGUF file."""
    generator = torch.Generator().manual_seed(bits)
    scale = torch.rand(OUT, IN // 32, generator=generator).half().float() / 2**bits
    q = torch.randint(2**bits, (OUT, IN), generator=generator, dtype=torch.uint8)
    return Groups(bits=bits, q=q, scale=scale, minimum=-scale * 2 ** (bits - 1) + 0.01)


@pytest.mark.parametrize("rows", [1, 3, 16, 63])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-1)], ids=str
)
def test_packed_weight_multiplies_like_the_plain_one(
    rows: int, dtype: torch.dtype, tolerance: float
) -> None:
    linear = random_linear(dtype, 53, 37)
    x = inputs(rows, dtype, 37)
    expected = x.float() @ linear.weight.float().T
    plain = linear(x)
    linear.pack()
    for y in (plain, linear(x)):
        assert y.dtype == dtype
        torch.testing.assert_close(y.float(), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, FEW_ROWS, FEW_ROWS + 1, 16])
@pytest.mark.parametrize("weights", ["int4", "auto"])
def test_groups_of_the_checkpoint_multiply_as_exactly_as_bfloat16_weights(
    bits: int, rows: int, weights: Weights
) -> None:
    groups = random_groups(bits)
    exact = groups.dequantized()
    linear = Linear(IN, OUT).to(torch.bfloat16)
    linear.weight.copy_(exact)
    x = inputs(rows, torch.bfloat16)
    linear.pack(weights, groups)
    expected = x.float() @ exact.T
    rounded = x.float() @ exact.bfloat16().float().T
    error, allowed = (linear(x).float() - expected).norm(), (rounded - expected).norm()
    # On top of the weights' rounding comes that of the result, at most 2⁻⁹ of it.
    assert error < 1.5 * allowed + 2**-9 * expected.norm()


def test_few_rows_take_the_groups_and_many_the_weight_itself() -> None:
    linear = Linear(IN, OUT).to(torch.bfloat16)
    linear.weight.zero_()
    linear.pack("auto", random_groups(4))
    assert linear(inputs(FEW_ROWS, torch.bfloat16)).abs().sum() > 0
    assert linear(inputs(FEW_ROWS + 1, torch.bfloat16)).abs().sum() == 0


@pytest.mark.parametrize(("weights", "tolerance"), [("int8", 0.01), ("int4", 0.12)])
@pytest.mark.parametrize("rows", [1, 16])
def test_rounded_weights_are_near_the_plain_ones(
    weights: Weights, tolerance: float, rows: int
) -> None:
    linear = random_linear(torch.bfloat16)
    x = inputs(rows, torch.bfloat16)
    expected = x.float() @ linear.weight.float().T
    linear.pack(weights)
    assert (linear(x).float() - expected).norm() < tolerance * expected.norm()


def test_shape_without_a_4_bit_kernel_keeps_its_type() -> None:
    linear = random_linear(torch.bfloat16, 53, 37)
    x = inputs(1, torch.bfloat16, 37)
    expected = linear(x)
    linear.pack("int4")
    torch.testing.assert_close(linear(x), expected, atol=2e-1, rtol=0)


def test_constant_group_is_quantized_to_itself() -> None:
    weight = torch.full((16, 32), 0.25)
    assert torch.equal(quantized(weight).dequantized(), weight)


def test_matrix_that_needs_8_bits_keeps_them_where_4_are_asked_for() -> None:
    linear = Linear(IN, OUT, least_bits=8).to(torch.bfloat16)
    linear.weight.copy_(random_linear(torch.bfloat16).weight)
    x = inputs(4, torch.bfloat16)
    expected = x.float() @ linear.weight.float().T
    linear.pack("int4")
    assert (linear(x).float() - expected).norm() < 0.01 * expected.norm()


def test_rows_without_an_8_bit_kernel_keep_their_type() -> None:
    linear = random_linear(torch.bfloat16, 24, 40)  # torch would read past the end of these
    x = inputs(33, torch.bfloat16, 40)
    expected = linear(x)
    linear.pack("int8")
    torch.testing.assert_close(linear(x), expected, atol=2e-1, rtol=0)
