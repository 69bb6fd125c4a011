"""Convolutions with state: any split, beside any other stream, is what torch computes at once."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sensorium.encoders.streaming import CausalConv, Splice

WIDTH = 5


def random_conv(kernel: int) -> CausalConv:
    generator = torch.Generator().manual_seed(kernel)
    weight = torch.randn(kernel, WIDTH, generator=generator)
    return CausalConv(weight, torch.randn(WIDTH, generator=generator))


def at_once(conv: CausalConv, x: Tensor) -> Tensor:
    """[T, C] → [T, C], by torch, zeros before the first row."""
    padded = F.pad(x.T[None], (len(conv.weight) - 1, 0))
    return F.conv1d(padded, conv.weight.T[:, None], conv.bias, groups=WIDTH)[0].T


def test_splice_puts_each_streams_past_before_its_rows() -> None:
    splice = Splice(torch.tensor([2, 1]), 2)
    past = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    joined = splice.join(past, torch.tensor([[10.0], [20.0], [30.0]]))
    assert joined.flatten().tolist() == [1, 2, 10, 20, 3, 4, 30]
    assert splice.rows_of(joined[:, 2:]).flatten().tolist() == [10, 20, 30]
    assert splice.next_past(joined).tolist() == [[[10], [20]], [[4], [30]]]


def test_streams_in_step_stand_side_by_side() -> None:
    splice = Splice(torch.tensor([1, 1]), 2)
    past = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    joined = splice.join(past, torch.tensor([[10.0], [20.0]]))
    assert joined.tolist() == [[[1], [2], [10]], [[3], [4], [20]]]
    assert splice.rows_of(joined[:, 2:]).flatten().tolist() == [10, 20]
    assert splice.next_past(joined).tolist() == [[[2], [10]], [[4], [20]]]


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.integers(1, 8),
    calls=st.lists(
        st.lists(st.integers(0, 12), min_size=3, max_size=3)
        | st.integers(0, 12).map(lambda num: [num] * 3),
        min_size=1,
        max_size=6,
    ),
)
def test_any_split_of_any_streams_equals_each_at_once(kernel: int, calls: list[list[int]]) -> None:
    conv = random_conv(kernel)
    past = torch.zeros(3, kernel - 1, WIDTH)
    streams = torch.randn(
        3, sum(map(max, calls)), WIDTH, generator=torch.Generator().manual_seed(1)
    )
    heard, made = [0, 0, 0], [[], [], []]  # type: tuple[list[int], list[list[Tensor]]]
    for lengths in calls:
        parts = [
            stream[at : at + length]
            for stream, at, length in zip(streams, heard, lengths, strict=True)
        ]
        splice = Splice(torch.tensor(lengths), kernel - 1)
        y = conv(torch.cat(parts), past, splice)
        for i, part in enumerate(torch.split(y, lengths)):
            made[i].append(part)
            heard[i] += lengths[i]
    for stream, num, parts in zip(streams, heard, made, strict=True):
        expected = at_once(conv, stream[:num]) if num else stream[:0]
        torch.testing.assert_close(torch.cat(parts), expected, rtol=0, atol=1e-5)


def test_past_is_the_last_inputs_even_of_a_stream_shorter_than_the_kernel() -> None:
    conv = random_conv(7)
    past = torch.zeros(1, 6, WIDTH)
    rows = torch.randn(9, WIDTH, generator=torch.Generator().manual_seed(2))
    conv(rows[:2], past, Splice(torch.tensor([2]), 6))
    assert torch.equal(past[0], torch.cat([torch.zeros(4, WIDTH), rows[:2]]))
    conv(rows[2:], past, Splice(torch.tensor([7]), 6))
    assert torch.equal(past[0], rows[3:])
