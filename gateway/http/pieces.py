"""Long sound in pieces that the model can hear one at a time, cut where it is quiet."""

from collections.abc import AsyncIterator

import numpy as np

from sensorium.encoders.media import Samples

SEARCH_S = 20.0
"""The quietest place is looked for in the last so many seconds of a piece."""
_WINDOW_S = 0.3


async def pieces(
    chunks: AsyncIterator[Samples], rate_hz: int, max_piece_s: float
) -> AsyncIterator[Samples]:
    """Regroup sound into pieces of `max_piece_s` at most; they joined are the sound.

    Takes no more chunks than the next piece needs, so that a slow consumer slows the source.
    """
    limit = int(max_piece_s * rate_hz)
    held: list[Samples] = []
    num_held = 0
    async for chunk in chunks:
        held.append(chunk)
        num_held += len(chunk)
        while num_held > limit:
            sound = np.concatenate(held)
            cut = quietest(sound[:limit], rate_hz)
            yield sound[:cut]
            held = [sound[cut:]]
            num_held = len(sound) - cut
    if num_held:
        yield np.concatenate(held)


def quietest(sound: Samples, rate_hz: int) -> int:
    """Return the middle of the quietest 0.3 s in the last 20 s of `sound` [n], a sample index."""
    window = int(_WINDOW_S * rate_hz)
    start = max(len(sound) - int(SEARCH_S * rate_hz), len(sound) // 2)
    energy = np.cumsum(np.square(sound[start:], dtype=np.float64))  # [n - start]
    if len(energy) <= window:
        return len(sound)
    return start + int(np.argmin(energy[window:] - energy[:-window])) + window // 2 + 1
