"""Which words of a growing hypothesis may be settled, and where its window may be cut. Pure."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from sensorium.encoders.media import Samples


class ComparedWord(Protocol):
    """A word with the form it is compared in."""

    @property
    def key(self) -> str: ...


class HeardWord(ComparedWord, Protocol):
    """A word with its place in the window in seconds."""

    @property
    def start_s(self) -> float: ...
    @property
    def end_s(self) -> float: ...


Heard = TypeVar("Heard", bound=HeardWord)


def num_agreed(previous: Sequence[str], current: Sequence[HeardWord], until_s: float) -> int:
    """Return how many leading words of `current` may be settled.

    Those that the previous pass heard as well (LocalAgreement-2, Liu et al. 2020), as long as
    they end by `until_s`: what is close to the end of the sound may still turn into another word.
    `previous` holds keys; both begin after the words settled so far.
    """
    num = 0
    for before, word in zip(previous, current, strict=False):
        if before != word.key or word.end_s > until_s:
            break
        num += 1
    return num


def begins_with(words: Sequence[ComparedWord], settled: Sequence[ComparedWord]) -> bool:
    """Tell whether `words` begins with the settled words."""
    return [w.key for w in words[: len(settled)]] == [w.key for w in settled]


def spoken(words: Sequence[Heard]) -> Sequence[Heard]:
    """Return the words up to those that were made up.

    What the decoder invents, after the last sound or in a loop, has no place in the sound: the
    alignment squeezes such words into one instant. Speech has no three words in 0.1 s. Where a
    hypothesis begins like that, only those words are dropped, so that no window is without words.
    """
    made_up = [False] * len(words)
    for i in range(len(words) - 2):
        if words[i + 2].end_s - words[i].start_s < 0.1:
            made_up[i : i + 3] = [True] * 3
    first = made_up.index(False) if False in made_up else len(words)
    end = made_up.index(True, first) if True in made_up[first:] else len(words)
    return words[first:end]


def num_connected(words: Sequence[HeardWord], num_settled: int, pause_s: float) -> int:
    """Return how many leading words come before the first pause after the settled ones.

    A long gap may be a pause or words that the decoder skipped; what follows it is best heard in
    a window that begins there.
    """
    for i in range(max(1, num_settled), len(words)):
        if words[i].start_s - words[i - 1].end_s > pause_s:
            return i
    return len(words)


def cut_candidates(
    settled: Sequence[HeardWord], keep_words: int, keep_s: float, end_s: float
) -> range:
    """Return the numbers of leading settled words that the window may lose, from few to many.

    At least `keep_words` settled words and `keep_s` seconds of sound before `end_s` stay, so that
    the next pass hears its first new word in context. Empty if nothing can go.
    """
    last = len(settled) - keep_words
    while last > 0 and end_s - settled[last].start_s < keep_s:
        last -= 1
    return range(1, max(0, last) + 1)


def quietest(samples: Samples, rate_hz: int, from_s: float, until_s: float) -> tuple[float, float]:
    """Return (seconds, level) of the middle of the quietest 40 ms between two times.

    The level is a mean square. Without 40 ms of sound there it is (`from_s`, infinity).
    """
    frame = rate_hz // 25
    first = max(0, round(from_s * rate_hz))
    piece = samples[first : max(0, round(until_s * rate_hz))]
    num_frames = len(piece) // frame
    if num_frames == 0:
        return from_s, float("inf")
    levels = np.square(piece[: num_frames * frame].reshape(num_frames, frame)).mean(axis=1)
    best = int(levels.argmin())
    return (first + best * frame + frame / 2) / rate_hz, float(levels[best])
