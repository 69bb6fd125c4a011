import math

import torch

from sensorium.core.layers.muse_attention import Frequencies


def test_angles_are_position_times_falling_frequency() -> None:
    positions = [0, 3, 1_048_575]
    cos, sin = Frequencies(8, 500_000.0).at(torch.tensor(positions))
    assert cos.shape == sin.shape == (3, 1, 8)
    assert cos.dtype == torch.float32
    for i, position in enumerate(positions):
        for j in range(4):
            angle = position * 500_000.0 ** (-2 * j / 8)
            for half, sign in ((j, -1), (j + 4, 1)):
                assert math.isclose(cos[i, 0, half], math.cos(angle), abs_tol=1e-7)
                assert math.isclose(sin[i, 0, half], sign * math.sin(angle), abs_tol=1e-7)


def test_frequencies_are_real_even_where_modules_are_built_without_data() -> None:
    with torch.device("meta"):
        frequencies = Frequencies(4, 100.0)
    cos, _ = frequencies.at(torch.tensor([1]))
    torch.testing.assert_close(cos[0, 0, :2], torch.tensor([1.0, 0.1]).cos())
