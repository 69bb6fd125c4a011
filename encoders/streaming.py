"""Layers that go on where their stream left off, over many streams that are not in step.

A batch is ragged: the rows of S streams stand one stream after the other in one matrix [T, C], and
each stream brings as many as it has. What a layer must remember of a stream, its past, is a tensor
[S, P, C] of the caller's, zeros for a stream that begins; the layer replaces it by the next one.
So a stream's rows are the same whatever it is cut into and whoever shares its batches.
"""

import torch
from torch import Tensor


class Splice:
    """Puts the past of every stream before its new rows, and takes apart what is made of that.

    Two streams with 2 and 1 new rows (a, b) and a past of 2 (x, y) become x x a a y y b. Streams
    that all bring as many, most of the time one hop each, become a row of a tensor each, in half
    the time and with nothing computed in vain.
    """

    def __init__(self, lengths: Tensor, num_past: int) -> None:
        """Lay out `lengths` [S] new rows of each stream (int64) after `num_past` old ones each."""
        self._num_streams, self._num_past = len(lengths), num_past
        self._length = int(lengths[0]) if bool((lengths == lengths[0]).all()) else None
        if self._length is None:
            streams = torch.repeat_interleave(lengths)  # [T]: whose row it is
            steps = torch.arange(num_past)
            starts = lengths.cumsum(0) - lengths + num_past * torch.arange(len(lengths))
            self._new = torch.arange(len(streams)) + num_past * (streams + 1)  # [T]
            self._past = (starts[:, None] + steps).flatten()  # [S · P]
            self._next_past = (starts[:, None] + lengths[:, None] + steps).flatten()  # [S · P]

    def join(self, past: Tensor, rows: Tensor) -> Tensor:
        """Put [S, P, C] and [T, C] together: [1, S · P + T, C], or [S, P + T / S, C]."""
        if self._length is not None:
            return torch.cat((past, rows.view(len(past), self._length, rows.shape[1])), dim=1)
        joined = rows.new_empty(len(self._past) + len(rows), rows.shape[1])
        joined.index_copy_(0, self._past, past.flatten(0, 1))
        return joined.index_copy_(0, self._new, rows)[None]

    def rows_of(self, y: Tensor) -> Tensor:
        """Return the new rows [T, C] of what was made of each joined row but the first P."""
        if self._length is not None:
            return y.flatten(0, 1)
        return y[0].index_select(0, self._new - self._num_past)

    def next_past(self, joined: Tensor) -> Tensor:
        """Return the last P rows of every stream, [S, P, C]."""
        if self._length is not None:
            return joined[:, self._length :]
        last = joined[0].index_select(0, self._next_past)
        return last.view(self._num_streams, self._num_past, last.shape[1])


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
        num = joined.shape[1] - past.shape[1]
        y = torch.addcmul(self.bias, joined[:, :num], self.weight[0])
        for j in range(1, len(self.weight)):
            y.addcmul_(joined[:, j : j + num], self.weight[j])
        past.copy_(splice.next_past(joined))
        return splice.rows_of(y)
