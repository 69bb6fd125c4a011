"""Where rows of an encoder stand in a prompt: the control tokens around and under them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaMarks:
    """Ids around one medium's rows: `start`, `placeholder` once per row, `end`.

    `separator` stands between the groups of a video, each behind its time in words.
    """

    start: int
    placeholder: int
    end: int
    separator: int | None = None
