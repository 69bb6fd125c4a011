"""How an op becomes one that PyTorch dispatches by the device of its tensors.

On the CPU its kernel is called directly: the dispatcher, which looks at every argument and goes
back to Python, costs 3 µs a call, and a decode step of thirty layers makes 270 calls.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch
from torch.library import Library, infer_schema

_NAMESPACE = "sensorium"
_library: Any = Library(_NAMESPACE, "DEF")  # type: ignore[no-untyped-call]  # torch has no types


def custom_op(
    name: str,
    reference: Callable[..., Any],
    *,
    mutates_args: Iterable[str],
    cpu: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Define the op `name`; `reference` serves every device that has no own kernel.

    `mutates_args` names the arguments that it writes to, `cpu` is the kernel of that device.
    Returns a function of positional arguments, of which the first is a tensor.
    """
    _library.define(name + infer_schema(reference, mutates_args=list(mutates_args)))
    _library.impl(name, reference, "CompositeExplicitAutograd")
    if cpu is not None:
        _library.impl(name, cpu, "CPU")
    op: Callable[..., Any] = getattr(getattr(torch.ops, _NAMESPACE), name).default
    on_cpu = cpu or reference

    @wraps(reference)
    def call(first: torch.Tensor, *others: Any) -> Any:
        return on_cpu(first, *others) if first.is_cpu else op(first, *others)

    return call
