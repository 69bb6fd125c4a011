"""Bytes of any format, in any split, become the same samples on one timeline."""

import numpy as np
import pytest

from sensorium.encoders.media import Samples
from sensorium.gateway.configuration import AudioFormat
from sensorium.gateway.ingest import Timeline

TONE = (0.5 * np.sin(np.arange(24_000) * 2 * np.pi * 440 / 24_000) * 32767).astype("<i2")


def decoded(audio_format: AudioFormat, data: bytes, size: int) -> Samples:
    timeline = Timeline(audio_format, 16_000)
    pieces = [timeline.append(data[i : i + size]) for i in range(0, len(data), size)]
    return np.concatenate([*pieces, timeline.flush()])


@pytest.mark.parametrize("size", [1, 7, 960, 10_001])
def test_packets_of_any_size_give_the_samples_of_the_whole(size: int) -> None:
    data = TONE.tobytes()[: 9_600 if size == 1 else None]
    whole = decoded(AudioFormat(), data, len(data))
    np.testing.assert_allclose(decoded(AudioFormat(), data, size), whole, atol=1e-6)


def test_a_second_stays_a_second_and_keeps_its_tone() -> None:
    samples = decoded(AudioFormat(), TONE.tobytes(), 960)
    assert len(samples) == 16_000
    expected = 0.5 * np.sin(np.arange(16_000) * 2 * np.pi * 440 / 16_000)
    np.testing.assert_allclose(samples[800:-800], expected[800:-800], atol=2e-3)


def test_sound_at_the_models_rate_is_not_touched() -> None:
    audio_format = AudioFormat(rate_hz=16_000)
    np.testing.assert_array_equal(
        decoded(audio_format, TONE.tobytes(), 320), TONE.astype(np.float32) / 32768
    )


@pytest.mark.parametrize(
    ("encoding", "code", "level"),
    [  # ITU-T G.711, tables 2a and 1a, as 16-bit linear
        ("pcmu", 0xFF, 0),
        ("pcmu", 0x00, -32124),
        ("pcmu", 0x80, 32124),
        ("pcmu", 0xEF, 132),
        ("pcma", 0xD5, 8),
        ("pcma", 0x55, -8),
        ("pcma", 0x2A, -32256),
        ("pcma", 0xAA, 32256),
    ],
)
def test_telephone_codes_have_their_levels(encoding: str, code: int, level: int) -> None:
    audio_format = AudioFormat(encoding=encoding, rate_hz=8_000)  # type: ignore[arg-type]  # str literals
    timeline = Timeline(audio_format, 8_000)
    assert timeline.append(bytes([code]))[0] * 32768 == level


def test_a_new_format_starts_afresh() -> None:
    timeline = Timeline(AudioFormat(), 16_000)
    timeline.append(b"\x01")
    timeline.set_format(AudioFormat(encoding="pcmu", rate_hz=8_000))
    timeline.append(b"\xff" * 800)
    assert not np.concatenate([timeline.append(b"\xff" * 800), timeline.flush()]).any()
