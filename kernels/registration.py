"""How an op becomes one that PyTorch dispatches by the device of its tensors.

`torch.library.custom_op` does the same with checks in Python at every call: 6 µs for the eight
arguments of `rope_and_store` where this takes 3, half a millisecond in a step of thirty layers.
"""

from collections.abc import Callable, Iterable
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
    """Define the op `name` and return it; `reference` serves every device that has no own kernel.

    `mutates_args` names the arguments that it writes to, `cpu` is the kernel of that device.
    """
    _library.define(name + infer_schema(reference, mutates_args=list(mutates_args)))
    _library.impl(name, reference, "CompositeExplicitAutograd")
    if cpu is not None:
        _library.impl(name, cpu, "CPU")
    op: Callable[..., Any] = getattr(getattr(torch.ops, _NAMESPACE), name).default
    return op
