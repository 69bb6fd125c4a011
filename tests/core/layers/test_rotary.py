import math

import torch

from sensorium.core.layers.rotary import Rotary


def test_angles_are_position_times_falling_frequency() -> None:
    cos, sin = Rotary(8, 10_000, 10_000.0).at(torch.tensor([0, 3, 9_999]), torch.float32)
    assert cos.shape == sin.shape == (3, 1, 8)
    for row, position in enumerate((0, 3, 9_999)):
        for i in range(4):
            angle = position * 10_000.0 ** (-2 * i / 8)
            for column in (i, i + 4):
                assert abs(cos[row, 0, column].item() - math.cos(angle)) < 1e-6
            assert abs(sin[row, 0, i + 4].item() - math.sin(angle)) < 1e-6
            assert sin[row, 0, i] == -sin[row, 0, i + 4]
