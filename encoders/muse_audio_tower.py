"""Muse Spark's audio tower: samples → rows, a pyramid of causal convolutions without a look-ahead.

Layout and names: Hugging Face's `MuseSparkForConditionalGeneration`. Matrices are multiplied in
the type asked for, everything between them is in float32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sensorium.encoders.linear import Linear
from sensorium.encoders.streaming import CausalConv, Splice

TensorOf = Callable[[str, tuple[int, ...]], Tensor]
"""Returns a tensor of the checkpoint by its name; it has the shape that is asked for."""

_PREFIX = "model.audio_tower"


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerConfig:
    """Sizes of the tower: of each stage how many frames it folds into one, its width and blocks.

    `out_width` and `out_eps` are the decoder's, whose norm the rows end with.
    """

    folds: tuple[int, ...]
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    kernel: int
    mlp_ratio: float
    eps: float
    out_width: int
    out_eps: float

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "TowerConfig":
        """Take it from a parsed config.json. Raises ValueError for what can't be run."""
        try:
            audio, text = config["audio_config"], config["text_config"]
            found = cls(
                folds=tuple(int(fold) for fold in audio["patch_sizes"]),
                widths=tuple(int(width) for width in audio["hidden_sizes"]),
                depths=tuple(int(depth) for depth in audio["depths"]),
                kernel=int(audio["conv_kernel_size"]),
                mlp_ratio=float(audio["mlp_ratio"]),
                eps=float(audio.get("rms_norm_eps", 1e-6)),
                out_width=int(text["hidden_size"]),
                out_eps=float(text.get("rms_norm_eps", 1e-5)),
            )
            activation = audio.get("hidden_act", "gelu")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"missing or not a number: {error}"
            raise ValueError(f"config.json can't describe an audio tower; {reason}") from error
        if activation != "gelu":
            raise ValueError(f"audio_config.hidden_act is {activation!r}, only 'gelu' is known")
        sizes = (found.folds, found.widths, found.depths)
        if len({len(size) for size in sizes}) != 1 or min(found.kernel, *map(min, sizes)) < 1:
            raise ValueError(
                "audio_config must have as many patch_sizes as hidden_sizes and depths, and all "
                f"and conv_kernel_size above 0, got {sizes} and {found.kernel}"
            )
        return found

    @property
    def hop_samples(self) -> int:
        """Samples that become one row."""
        return prod(self.folds)

    @property
    def past_size(self) -> int:
        """Values that a stream's past holds."""
        blocks = zip(self.depths, self.widths, strict=True)
        return (self.kernel - 1) * sum(depth * width for depth, width in blocks)


class MuseAudioTower:
    """The tower with its weights; what it remembers of a stream is the caller's."""

    def __init__(self, config: TowerConfig, tensor: TensorOf, dtype: torch.dtype) -> None:
        """Take every tensor of the tower from `tensor`; products are computed in `dtype`."""
        read = _Reader(tensor, dtype)
        self.config = config
        self._stages: list[_Stage] = []
        width = 1
        for i, fold in enumerate(config.folds):
            self._stages.append(_Stage(config, i, fold * width, read))
            width = config.widths[i]
        self._norm = _Norm(read.scale(f"{_PREFIX}.norm", width), config.eps)
        self._projection = read.linear(f"{_PREFIX}.proj", width, config.out_width)
        scale = read.scale(f"{_PREFIX}.post_proj_norm", config.out_width)
        self._last_norm = _Norm(scale, config.eps)

    def __call__(self, samples: Tensor, num_hops: Tensor, past: Tensor) -> Tensor:
        """Encode the whole hops of S streams, one stream after the other.

        `samples` is float32 [Σ num_hops · hop_samples], `num_hops` int64 [S], each at least 1.
        `past` [S, past_size], float32, is replaced by the next. Returns [Σ num_hops, D].
        """
        config, x, begin = self.config, samples[:, None], 0
        rows_per_hop = config.hop_samples
        for stage, fold, width in zip(self._stages, config.folds, config.widths, strict=True):
            rows_per_hop //= fold
            splice = Splice(num_hops * rows_per_hop, config.kernel - 1)
            x = stage.fold(x.view(len(x) // fold, -1))
            for block in stage.blocks:
                end = begin + (config.kernel - 1) * width
                x = block(x, past[:, begin:end].view(len(past), config.kernel - 1, width), splice)
                begin = end
        x = self._last_norm(self._projection(self._norm(x)).float())
        return F.rms_norm(x, (config.out_width,), None, config.out_eps)


class _Stage:
    """Folds frames of the stage before into wider ones, then runs its blocks."""

    def __init__(self, config: TowerConfig, index: int, in_width: int, read: "_Reader") -> None:
        name, width = f"{_PREFIX}.layers.{index}", config.widths[index]
        self._projection = read.linear(f"{name}.patch_embedder.proj", in_width, width)
        self._norm = _Norm(read.scale(f"{name}.patch_embedder.norm", width), config.eps)
        self.blocks = [
            _Block(config, f"{name}.conv_blocks.{j}", width, read)
            for j in range(config.depths[index])
        ]

    def fold(self, x: Tensor) -> Tensor:
        """[T, fold · width before] → [T, width]."""
        return self._norm(self._projection(x).float())


class _Block:
    """x + mlp(norm(conv(x)))."""

    def __init__(self, config: TowerConfig, name: str, width: int, read: "_Reader") -> None:
        inner = int(width * config.mlp_ratio)
        self._conv = read.conv(f"{name}.conv", width, config.kernel)
        self._norm = _Norm(read.scale(f"{name}.norm", width), config.eps)
        self._up = read.linear(f"{name}.mlp.fc1", width, inner)
        self._down = read.linear(f"{name}.mlp.fc2", inner, width)

    def __call__(self, x: Tensor, past: Tensor, splice: Splice) -> Tensor:
        """[T, C] → [T, C]; `past` [S, P, C] is replaced by the next."""
        y = self._norm(self._conv(x, past, splice))
        return self._down(F.gelu(self._up(y))).float().add_(x)


class _Norm:
    def __init__(self, weight: Tensor, eps: float) -> None:
        self._weight, self._eps = weight, eps

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self._weight.shape, self._weight, self._eps)


class _Reader:
    """Layers from named tensors: matrices in `dtype`, all else in float32."""

    def __init__(self, tensor: TensorOf, dtype: torch.dtype) -> None:
        self._tensor, self._dtype = tensor, dtype

    def scale(self, name: str, width: int) -> Tensor:
        return self._tensor(f"{name}.weight", (width,)).float()

    def linear(self, name: str, in_width: int, out_width: int) -> Linear:
        weight = self._tensor(f"{name}.weight", (out_width, in_width)).to(self._dtype)
        return Linear(weight, self._tensor(f"{name}.bias", (out_width,)).to(self._dtype))

    def conv(self, name: str, width: int, kernel: int) -> CausalConv:
        weight = self._tensor(f"{name}.weight", (width, 1, kernel)).float()
        bias = self._tensor(f"{name}.bias", (width,)).float()
        return CausalConv(weight[:, 0].T.contiguous(), bias)
