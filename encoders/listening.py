"""How windows are heard: in batches of one shape, and once with all care where it counts."""

from collections.abc import Sequence
from dataclasses import replace

from sensorium.encoders.settling import begins_with
from sensorium.encoders.whisper import MAX_FRAMES, Hearing, Whisper, Window


def hear_windows(whisper: Whisper, windows: Sequence[Window], beam_size: int) -> list[Hearing]:
    """Hear windows in as few batches as their shapes allow."""
    shapes = {(w.frames, len(w.prompt)) for w in windows}
    hearings: dict[int, Hearing] = {}
    for shape in sorted(shapes):
        rows = [i for i, w in enumerate(windows) if (w.frames, len(w.prompt)) == shape]
        batch = [windows[i] for i in rows]
        heard = whisper.hear(batch, whisper.encode(batch), beam_size)
        hearings.update(zip(rows, heard, strict=True))
    return [hearings[i] for i in range(len(windows))]


def hear_freely(
    whisper: Whisper, windows: Sequence[Window], *, beam_size: int, doubts: Sequence[float]
) -> list[Hearing]:
    """Hear windows as if nothing in them were settled, for the rest is better heard that way.

    Where the result doesn't begin with the prefix the window is heard again with it forced.
    """
    free = [replace(window, prefix=()) for window in windows]
    heard = hear_windows(whisper, free, beam_size)
    heard = hear_doubtful_again(whisper, free, heard, beam_size=beam_size, doubts=doubts)
    others = [i for i, h in enumerate(heard) if not begins_with(h.words, windows[i].prefix)]
    forced = [windows[i] for i in others]
    again = hear_windows(whisper, forced, beam_size)
    their_doubts = [doubts[i] for i in others]
    again = hear_doubtful_again(whisper, forced, again, beam_size=beam_size, doubts=their_doubts)
    for i, hearing in zip(others, again, strict=True):
        heard[i] = hearing
    return heard


def hear_doubtful_again(
    whisper: Whisper,
    windows: Sequence[Window],
    heard: Sequence[Hearing],
    *,
    beam_size: int,
    doubts: Sequence[float],
) -> list[Hearing]:
    """Check loops, and results below their mean log probability in `doubts`, by another hearing.

    Padded to the full 30 s, as Whisper was trained, and behind twice the lead:
    a short question that is misheard at one place of the window often isn't at another. The more
    probable result of each window is returned.
    """
    best = list(heard)
    doubtful = [
        i
        for i, (window, hearing, doubt) in enumerate(zip(windows, heard, doubts, strict=True))
        if window.frames < MAX_FRAMES
        and hearing.words
        and (hearing.loops or hearing.mean_log_prob < doubt)
    ]
    others = [replace(windows[i], frames=MAX_FRAMES, lead=2 * windows[i].lead) for i in doubtful]
    for i, other in zip(doubtful, hear_windows(whisper, others, beam_size), strict=True):
        is_better = heard[i].loops or other.mean_log_prob > heard[i].mean_log_prob
        if is_better and not other.loops:
            best[i] = other
    return best
