"""Segments and captions from words."""

import pytest

from sensorium.encoders.base import Word
from sensorium.gateway.http.captions import MAX_SEGMENT_CHARS, Segment, segments, srt, vtt


def word(text: str, start_s: float, end_s: float) -> Word:
    return Word(text=text, start_s=start_s, end_s=end_s, probability=1.0)


def test_segments_end_with_sentences() -> None:
    words = [word(" Yes.", 0, 0.5), word(" And", 0.5, 0.7), word(" no", 0.7, 1.0)]
    assert [part.text for part in segments(words)] == ["Yes.", "And no"]
    assert [(part.start_s, part.end_s) for part in segments(words)] == [(0, 0.5), (0.5, 1.0)]


def test_segments_end_at_pauses() -> None:
    words = [word(" one", 0, 0.5), word(" two", 1.5, 2)]
    assert [part.text for part in segments(words)] == ["one", "two"]


def test_segments_are_no_longer_than_a_caption() -> None:
    words = [word(f" word{i}", i * 0.2, i * 0.2 + 0.2) for i in range(200)]
    parts = segments(words)
    assert all(len(part.text) <= MAX_SEGMENT_CHARS for part in parts)
    assert all(part.end_s - part.start_s <= 7.0 + 1e-9 for part in parts)
    assert " ".join(part.text for part in parts) == " ".join(f"word{i}" for i in range(200))


def test_no_words_make_no_segments() -> None:
    assert segments([]) == []
    assert srt([]) == ""
    assert vtt([]) == "WEBVTT\n"


@pytest.mark.parametrize(
    ("seconds", "clock"),
    [(0.0, "00:00:00,000"), (59.9996, "00:01:00,000"), (3661.5, "01:01:01,500")],
)
def test_clock(seconds: float, clock: str) -> None:
    assert clock in srt([Segment(start_s=seconds, end_s=seconds, text="x")])


def test_srt_and_vtt() -> None:
    parts = [
        Segment(start_s=0, end_s=1.25, text="a < b"),
        Segment(start_s=2, end_s=3, text="& c"),
    ]
    assert srt(parts) == (
        "1\n00:00:00,000 --> 00:00:01,250\na < b\n\n2\n00:00:02,000 --> 00:00:03,000\n& c\n"
    )
    assert vtt(parts) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.250\na &lt; b\n\n"
        "00:00:02.000 --> 00:00:03.000\n&amp; c\n"
    )
