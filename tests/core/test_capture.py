import pytest
import torch
from torch import Tensor

from sensorium.core.capture import EMBEDS, Capture
from sensorium.core.errors import CoreError


def arange(rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(rows * columns).view(rows, columns).to(dtype)


def test_only_what_was_asked_for_is_kept() -> None:
    capture = Capture(layers=(EMBEDS, 1))
    for layer in (EMBEDS, 0, 1):
        capture.residual(layer, arange(2, 3))
    capture.router(1, arange(2, 4), arange(2, 2, torch.int64))
    assert list(capture.tensors()) == ["hidden.embeds", "hidden.1"]
    assert capture.num_bytes == 2 * 2 * 3 * 4


def test_batches_are_joined_in_order_and_brought_to_one_type() -> None:
    capture = Capture(layers=(0,), routers=True)
    whole = arange(5, 3, torch.bfloat16)
    for part in torch.split(whole, 2):
        capture.residual(0, part)
        capture.router(0, part, part.to(torch.int32))
    kept = capture.tensors()
    assert torch.equal(kept["hidden.0"], whole.float())
    assert kept["hidden.0"].dtype == kept["router.logits.0"].dtype == torch.float32
    assert torch.equal(kept["router.experts.0"], whole.long())


def test_what_is_kept_does_not_change_with_the_decoders_tensors() -> None:
    capture = Capture(layers=(0,))
    x = torch.ones(1, 2)
    capture.residual(0, x)
    x.zero_()
    assert capture.tensors()["hidden.0"].tolist() == [[1.0, 1.0]]


def test_limit_counts_bytes_as_they_are_kept() -> None:
    capture = Capture(layers=(0, 1), max_bytes=2 * 3 * 4)
    capture.residual(0, arange(2, 3, torch.bfloat16))
    with pytest.raises(CoreError, match=r"exceeds 24 bytes at hidden\.1"):
        capture.residual(1, arange(1, 1))
