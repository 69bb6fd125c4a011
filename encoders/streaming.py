"""Layers that go on where their stream left off, over many streams that are not in step.

A batch is ragged: the rows of S streams stand one stream after the other in one matrix [T, C], and
each stream brings as many as it has. What a layer must remember of a stream, its past, is a tensor
[S, P, C] of the caller's, zeros for a stream that begins; the layer replaces it by the next one.
So a stream's rows are the same whatever it is cut into and whoever shares its batches.
"""

import torch
from torch import Tensor


class Splice:
    """Where rows stand once the past of every stream is put before its new rows.

    Two streams with 2 and 1 new rows (a, b) and a past of 2 (x, y) are spliced into x x a a y y b:
    `new` is [2, 3, 6], `past` [0, 1, 4, 5], and `next_past`, the last 2 of each, [2, 3, 5, 6].
    """

    def __init__(self, lengths: Tensor, num_past: int) -> None:
        """Lay out `lengths` [S] new rows of each stream (int64) after `num_past` old ones each."""
        streams = torch.repeat_interleave(lengths)  # [T]: whose row it is
        steps = torch.arange(num_past)
        starts = lengths.cumsum(0) - lengths + num_past * torch.arange(len(lengths))
        self.num_past = num_past
        self.new = torch.arange(len(streams)) + num_past * (streams + 1)  # [T]
        self.past = (starts[:, None] + steps).flatten()  # [S · P]
        self.next_past = (starts[:, None] + lengths[:, None] + steps).flatten()  # [S · P]

    def join(self, past: Tensor, rows: Tensor) -> Tensor:
        """Put [S, P, C] and [T, C] together: [S · P + T, C]."""
        joined = rows.new_empty(len(self.past) + len(rows), rows.shape[1])
        joined.index_copy_(0, self.past, past.flatten(0, 1))
        return joined.index_copy_(0, self.new, rows)


class CausalConv:
    """Depthwise convolution over time that sees nothing later: k taps, of which the last is now.

    y[t] = bias + Σ_j weight[j] · x[t - (k - 1) + j], channel by channel. Its past are the last
    k - 1 inputs of each stream.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        """Take float32 taps [k, C], the oldest first, and bias [C]."""
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor, past: Tensor, splice: Splice) -> Tensor:
        """[T, C] → [T, C], float32; `past` [S, k - 1, C] is replaced by the next.

        All taps are multiplied where they stand: gathering seven rows for each would take ten times
        as long. What comes out where a stream's past is counts for nothing.
        """
        joined = splice.join(past, x)
        num = len(joined) - splice.num_past
        y = torch.addcmul(self.bias, joined[:num], self.weight[0])
        for j in range(1, len(self.weight)):
            y.addcmul_(joined[j : j + num], self.weight[j])
        past.copy_(joined.index_select(0, splice.next_past).view_as(past))
        return y.index_select(0, splice.new - splice.num_past)
