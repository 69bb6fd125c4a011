"""EfficientNet-lite0: which of ImageNet's 1000 classes a picture shows, with 4.65 M parameters.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (2019), in
the variant for small devices: no squeeze-and-excitation, ReLU6, stem and head of fixed width.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files as package_files
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from sensorium.encoders.labels import Label
from sensorium.encoders.media import Pixels

MODEL_TYPE = "efficientnet-lite0"
SIDE_PX = 224
"""It sees the square in the middle, the whole of the shorter side, brought to so many pixels."""
PASS_PICTURES = 4
"""More in one pass take more memory and no less time."""

_STAGES = (  # kernel, stride of the first block, expansion, width, blocks
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_STEM, _HEAD, _CLASSES = 32, 1280, 1000


class Classifier:
    """The network with its weights and the names of its classes. Safe to share between threads."""

    def __init__(self, model_dir: Path) -> None:
        """Read config.json and model.safetensors.

        Raises ValueError, OSError, KeyError or RuntimeError for a directory of another model.
        """
        config = json.loads((model_dir / "config.json").read_bytes())
        if config.get("model_type") != MODEL_TYPE:
            found = config.get("model_type")
            raise ValueError(f"{model_dir} holds a model of type {found!r} instead of {MODEL_TYPE}")
        self._net = EfficientNetLite0()
        self._net.load_state_dict(load_file(model_dir / "model.safetensors"), strict=True)
        self._net.requires_grad_(False).eval()
        self._net.to(
            memory_format=torch.channels_last
        )  # a third faster on a CPU, alone or in eights
        self._names = class_names()

    @torch.inference_mode()
    def classify(self, pictures: Sequence[Pixels], num_labels: int) -> list[list[Label]]:
        """Return the most probable classes of each picture, best first.

        Up to PASS_PICTURES share a pass.
        """
        labels: list[list[Label]] = []
        for first in range(0, len(pictures), PASS_PICTURES):
            batch = torch.stack([prepare(p) for p in pictures[first : first + PASS_PICTURES]])
            batch = batch.contiguous(memory_format=torch.channels_last)  # [N, 3, 224, 224]
            best = self._net(batch).softmax(-1).topk(num_labels)
            for values, ids in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                pairs = zip(values, ids, strict=True)
                labels.append([Label(name=self._names[i], probability=p) for p, i in pairs])
        return labels


@lru_cache(maxsize=1)
def load_classifier(model_dir: Path) -> Classifier:
    """Return the classifier of a directory; pictures and videos share one. Raises as it does."""
    return Classifier(model_dir)


class EfficientNetLite0(nn.Module):
    """[N, 3, 224, 224] → logits [N, 1000]. Batch normalisation is folded into the convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _SameConv(3, _STEM, 3, stride=2)
        blocks: list[nn.Module] = []
        width = _STEM
        for kernel, first_stride, expansion, out_width, num_blocks in _STAGES:
            for i in range(num_blocks):
                stride = first_stride if i == 0 else 1
                blocks.append(_Block(width, out_width, kernel, stride, expansion))
                width = out_width
        self.blocks = nn.Sequential(*blocks)
        self.head = _SameConv(width, _HEAD, 1)
        self.classifier = nn.Linear(_HEAD, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of every picture."""
        x = self.blocks(F.relu6(self.stem(x)))
        return self.classifier(F.relu6(self.head(x)).mean((2, 3)))


class _Block(nn.Module):
    """Inverted bottleneck (MBConv): wide depthwise convolution between two of single pixels."""

    def __init__(
        self, width: int, out_width: int, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        inner = width * expansion
        self.expand = _SameConv(width, inner, 1) if expansion > 1 else None
        self.depthwise = _SameConv(inner, inner, kernel, stride=stride, groups=inner)
        self.project = _SameConv(inner, out_width, 1)
        self._is_residual = stride == 1 and width == out_width

    def forward(self, x: Tensor) -> Tensor:
        """[N, width, H, W] → [N, out_width, H / stride, W / stride]."""
        y = x if self.expand is None else F.relu6(self.expand(x))
        y = self.project(F.relu6(self.depthwise(y)))
        return x + y if self._is_residual else y


class _SameConv(nn.Conv2d):
    """A convolution padded as TensorFlow's "SAME": what is odd goes to the right and the bottom.

    At stride 2 an even side of H pixels becomes H / 2, with one zero row less above than below.
    """

    def __init__(
        self, width: int, out_width: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__(width, out_width, kernel, stride=stride, groups=groups)
        total = kernel - stride if kernel > 1 else 0
        self._padding = (total // 2, total - total // 2) * 2

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of `x` and zeros around it."""
        return super().forward(F.pad(x, self._padding) if self._padding[1] else x)


def prepare(pixels: Pixels) -> Tensor:
    """Cut the square in the middle out, bring it to 224 pixels: float32 [3, 224, 224] in [-1, 1].

    uint8 [H, W, 3] of any size.
    """
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = np.array(pixels[top : top + side, left : left + side], dtype=np.float32)
    x = torch.from_numpy(square).permute(2, 0, 1)[None]
    size = (SIDE_PX, SIDE_PX)
    x = F.interpolate(x, size, mode="bicubic", antialias=True, align_corners=False)[0]
    return (x.clamp(0, 255) - 127.0) / 128.0


def class_names() -> tuple[str, ...]:
    """Return the names of the classes in the order of the logits."""
    text = package_files("sensorium.encoders").joinpath("imagenet.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))
