"""Log-mel features against transformers' WhisperFeatureExtractor, the oracle."""

from typing import Any

import numpy as np
import pytest
from clips import load_clip
from transformers import WhisperFeatureExtractor

from sensorium.encoders.features import HOP_SAMPLES, LogMel


@pytest.mark.parametrize("num_frames", [650, 1101, 3000])
def test_features_are_whispers(num_frames: int) -> None:
    samples = load_clip("vctk_p225_003.wav")
    ours = LogMel()([samples], num_frames)
    padded = np.zeros(num_frames * HOP_SAMPLES, np.float32)
    padded[: len(samples)] = samples
    oracle: Any = WhisperFeatureExtractor
    expected = oracle()(
        padded, sampling_rate=16_000, padding="do_not_pad", return_tensors="np"
    ).input_features
    assert ours.shape == (1, 80, num_frames)
    np.testing.assert_allclose(ours, expected, atol=1e-4)


def test_a_window_alone_is_the_window_in_a_batch() -> None:
    noise = np.random.default_rng(0).standard_normal((2, 8000)).astype(np.float32) * 0.1
    batch = LogMel()(list(noise), 100)
    for row, window in zip(batch, noise, strict=True):
        np.testing.assert_allclose(LogMel()([window], 100)[0], row, atol=1e-5)


def test_broken_samples_give_finite_features() -> None:
    samples = np.array([np.nan, np.inf, -np.inf, 1e30] * 100, np.float32)
    assert np.isfinite(LogMel()([samples], 20)).all()
