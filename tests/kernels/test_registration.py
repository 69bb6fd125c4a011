import torch

from sensorium.kernels.registration import custom_op


def plus(x: torch.Tensor, y: torch.Tensor | None, out: torch.Tensor, factor: float) -> torch.Tensor:
    """Write x to `out` and return x, with y added where it is given, times `factor`."""
    out.copy_(x)
    return (x if y is None else x + y) * factor


def plus_on_cpu(
    x: torch.Tensor, y: torch.Tensor | None, out: torch.Tensor, factor: float
) -> torch.Tensor:
    """Return what tells it from `plus`."""
    return torch.full_like(x, -1.0)


def test_op_runs_its_reference_and_writes_what_it_names() -> None:
    op = custom_op("test_plus", plus, mutates_args=("out",))
    x, out = torch.ones(2), torch.zeros(2)
    assert op(x, None, out, 3.0).tolist() == [3.0, 3.0]
    assert op(x, x, out, 3.0).tolist() == [6.0, 6.0]
    assert out.tolist() == [1.0, 1.0]
    dispatched = torch.ops.sensorium.test_plus(2 * x, None, out, 3.0)
    assert dispatched.tolist() == [6.0, 6.0]
    assert out.tolist() == [2.0, 2.0]
    assert "Tensor(a2!) out" in str(torch.ops.sensorium.test_plus.default._schema)


def test_kernel_of_the_device_takes_the_place_of_the_reference() -> None:
    op = custom_op("test_plus_on_cpu", plus, mutates_args=("out",), cpu=plus_on_cpu)
    for call in (op, torch.ops.sensorium.test_plus_on_cpu):
        assert call(torch.ones(2), None, torch.zeros(2), 3.0).tolist() == [-1.0, -1.0]
