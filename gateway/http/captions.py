"""Words with times to segments, and segments to SubRip and WebVTT captions."""

from collections.abc import Sequence
from dataclasses import dataclass

from sensorium.encoders.base import Word

MAX_SEGMENT_S = 7.0
MAX_SEGMENT_CHARS = 84
"""Two lines of 42 characters, the usual limit of a caption."""
PAUSE_S = 1.0
_SENTENCE_ENDS = (".", "?", "!", "…")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of words to be shown together; times in seconds since the beginning of the file."""

    start_s: float
    end_s: float
    text: str


def segments(words: Sequence[Word]) -> list[Segment]:
    """Cut words at sentences, pauses, and where a caption would be too long."""
    runs: list[list[Word]] = []
    for word in words:
        if not runs or _ends_before(runs[-1], word):
            runs.append([])
        runs[-1].append(word)
    return [Segment(start_s=run[0].start_s, end_s=run[-1].end_s, text=joined(run)) for run in runs]


def joined(words: Sequence[Word]) -> str:
    """Return the text of words, with spaces where the words bring none."""
    return " ".join(word.text.strip() for word in words)


def srt(parts: Sequence[Segment]) -> str:
    """Return SubRip captions."""
    cues = [
        f"{number}\n{_clock(part.start_s, ',')} --> {_clock(part.end_s, ',')}\n{part.text}\n"
        for number, part in enumerate(parts, 1)
    ]
    return "\n".join(cues)


def vtt(parts: Sequence[Segment]) -> str:
    """Return WebVTT captions (https://www.w3.org/TR/webvtt1/)."""
    cues = [
        f"{_clock(part.start_s, '.')} --> {_clock(part.end_s, '.')}\n{_escaped(part.text)}\n"
        for part in parts
    ]
    return "\n".join(["WEBVTT\n", *cues])


def _ends_before(run: Sequence[Word], word: Word) -> bool:
    """Tell whether a caption made of `run` ends before `word`."""
    return (
        run[-1].text.rstrip().endswith(_SENTENCE_ENDS)
        or word.start_s - run[-1].end_s >= PAUSE_S
        or word.end_s - run[0].start_s > MAX_SEGMENT_S
        or len(joined([*run, word])) > MAX_SEGMENT_CHARS
    )


def _clock(seconds: float, separator: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, milliseconds = divmod(milliseconds, 1000)
    return f"{hours:02}:{minutes:02}:{whole:02}{separator}{milliseconds:03}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
