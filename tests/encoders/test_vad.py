"""The real silero-vad on real sound."""

import numpy as np
import pytest
from clips import load_clip

from sensorium.core.sources import resolve
from sensorium.encoders.media import Samples
from sensorium.encoders.vad import WINDOW_SAMPLES, SpeechDetector


@pytest.fixture(scope="module")
def detector() -> SpeechDetector:
    return SpeechDetector(resolve("silero-vad", None))


def windows_of(samples: Samples) -> list[Samples]:
    count = len(samples) // WINDOW_SAMPLES
    return list(samples[: count * WINDOW_SAMPLES].reshape(count, WINDOW_SAMPLES))


def scores(detector: SpeechDetector, samples: Samples) -> list[float]:
    state = detector.open()
    return [detector.score([window], [state])[0] for window in windows_of(samples)]


def test_speech_scores_high_and_silence_low(detector: SpeechDetector) -> None:
    assert np.median(scores(detector, load_clip("vctk_p225_003.wav"))) > 0.9
    assert max(scores(detector, load_clip("nonspeech_silence_5s_8k.wav"))) < 0.3


def test_a_stream_in_a_batch_scores_as_alone(detector: SpeechDetector) -> None:
    clips = [
        load_clip(name)[16_000:48_000]
        for name in ("jfk_16k.wav", "vctk_p225_003.wav", "es_sentence_16k.wav")
    ]
    states = [detector.open() for _ in clips]
    together = [
        detector.score(list(row), states) for row in zip(*map(windows_of, clips), strict=True)
    ]
    for clip, column in zip(clips, zip(*together, strict=True), strict=True):
        np.testing.assert_allclose(scores(detector, clip), column, atol=1e-4)


def test_broken_samples_do_not_poison_a_stream(detector: SpeechDetector) -> None:
    state = detector.open()
    detector.score([np.full(WINDOW_SAMPLES, np.nan, np.float32)], [state])
    later = [detector.score([w], [state])[0] for w in windows_of(load_clip("vctk_p225_003.wav"))]
    assert np.median(later) > 0.9


def test_a_window_of_another_length_is_refused(detector: SpeechDetector) -> None:
    with pytest.raises(ValueError, match="512 samples, not 320"):
        detector.score([np.zeros(320, np.float32)], [detector.open()])


def test_nothing_to_score_is_nothing(detector: SpeechDetector) -> None:
    assert detector.score([], []) == []
