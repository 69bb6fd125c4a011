"""The state of one clip of speech: its open window of sound, the words settled in it, its cuts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sensorium.encoders.base import ClipHints, Word
from sensorium.encoders.features import RATE_HZ
from sensorium.encoders.media import MediaError, MediaFrame, Samples
from sensorium.encoders.settling import cut_candidates, quietest
from sensorium.encoders.whisper import Hearing, TimedWord

MAX_PROMPT_TOKENS = 224

MAX_SILENCE_S = 1.0
"""A prepared end holds for so long."""
QUIET = 0.25
"""What has at most this share of the window's level (as root mean square) is silence after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEnd:
    """What a last pass heard in a window that began at `start` and ended at `end` samples."""

    start: int
    end: int
    num_settled: int
    hearing: Hearing


@dataclass(slots=True)
class SpeechClip:
    """State of one clip; owned by the caller, changed only by the encoder.

    `samples` is the open window, which begins `start` samples after the clip does, followed by
    what has come after the last grid point, `heard`. `settled` are the window's settled words,
    their times relative to it; `previous` are the keys of the last pass's other words. `prompt`
    holds the ids of the text before the window. `log_prob` and `num_tokens` sum over all settled
    words; `fresh` are those not yet handed out. `is_doubted`: words were given up as too unlikely.
    """

    hints: ClipHints
    language: str | None
    prompt: list[int]
    language_guess: str | None = None
    is_guess_good: bool = False
    samples: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    start: int = 0
    heard: int = 0
    settled: list[TimedWord] = field(default_factory=list)
    previous: list[str] = field(default_factory=list)
    pending: str = ""
    log_prob: float = 0.0
    num_tokens: int = 0
    is_doubted: bool = False
    problem: str | None = None
    fresh: list[Word] = field(default_factory=list)
    prepared: PreparedEnd | None = None

    @property
    def received(self) -> int:
        """Samples since the clip began."""
        return self.start + len(self.samples)

    @property
    def window(self) -> Samples:
        """The sound from the window's start to the last grid point."""
        return self.samples[: self.heard - self.start]

    @property
    def window_s(self) -> float:
        """Seconds from the window's start to the last grid point."""
        return (self.heard - self.start) / RATE_HZ

    @property
    def unheard_s(self) -> float:
        """Seconds of the window after its last settled word; 0 without one."""
        return self.window_s - self.settled[-1].end_s if self.settled else 0.0

    def holds_prepared(self) -> bool:
        """Tell whether only silence has come, and nothing was settled or cut, since `prepared`."""
        end = self.prepared
        if end is None or (end.start, end.num_settled) != (self.start, len(self.settled)):
            return False
        since = self.samples[end.end - end.start :]
        if len(since) > MAX_SILENCE_S * RATE_HZ:
            return False
        return not len(since) or _level(since) <= QUIET * _level(self.samples)

    def append(self, frame: MediaFrame) -> None:
        """Take in more sound; what is not finite counts as silence. Raises MediaError."""
        if frame.rate_hz != RATE_HZ:
            raise MediaError(
                "unsupported_rate", f"speech must come at {RATE_HZ} Hz, not {frame.rate_hz} Hz"
            )
        finite = np.nan_to_num(frame.data, nan=0.0, posinf=0.0, neginf=0.0)
        self.samples = np.concatenate([self.samples, finite.astype(np.float32, copy=False)])

    def mean_log_prob(self, words: Sequence[TimedWord]) -> float:
        """Mean log probability of all tokens settled so far and those of `words`; 0 without any."""
        num_tokens = self.num_tokens + sum(len(word.ids) for word in words)
        total = self.log_prob + sum(sum(word.log_probs) for word in words)
        return total / num_tokens if num_tokens else 0.0

    def settle(self, words: Sequence[TimedWord]) -> None:
        """Settle words of the window, in order."""
        start_s = self.start / RATE_HZ
        for word in words:
            self.settled.append(word)
            self.log_prob += sum(word.log_probs)
            self.num_tokens += len(word.ids)
            self.fresh.append(
                Word(
                    text=word.text,
                    start_s=round(start_s + word.start_s, 3),
                    end_s=round(start_s + word.end_s, 3),
                    probability=float(np.exp(np.mean(word.log_probs))),
                )
            )

    def take_fresh(self) -> tuple[Word, ...]:
        """Return the words settled since the last call."""
        words, self.fresh = tuple(self.fresh), []
        return words

    def cut(self, *, keep_words: int, keep_s: float, anywhere_s: float) -> None:
        """Cut the window at the last end of a sentence; what was before becomes prompt.

        Longer than `anywhere_s` and without one, it is cut at the quietest border between words.
        What must stay is said at `cut_candidates`.
        """
        places = cut_candidates(self.settled, keep_words, keep_s, self.window_s)
        sentences = [i for i in places if self.settled[i - 1].ends_sentence]
        if not places or not (sentences or self.window_s > anywhere_s):
            return
        borders = {i: self._border(i) for i in places}
        later = places[len(places) // 2 :]
        num = sentences[-1] if sentences else min(later, key=lambda i: borders[i][1])
        self._cut_at(num, borders[num][0])

    def cut_after_last(self) -> None:
        """Cut the window after its last settled word, so that what follows is heard anew.

        Without a prompt, which makes the decoder skip words that are like those it just read.
        """
        end_s = self.settled[-1].end_s
        cut_s, _ = quietest(self.samples, RATE_HZ, end_s - 0.5, end_s + 0.3)
        self._cut_at(len(self.settled), max(cut_s, self.settled[-1].start_s + 0.1))
        self.prompt.clear()

    def drop(self, seconds: float) -> None:
        """Forget the first `seconds` of the window."""
        num_samples = min(len(self.samples), round(seconds * RATE_HZ))
        self.samples = self.samples[num_samples:]
        self.start += num_samples

    def _border(self, num: int) -> tuple[float, float]:
        """Find (seconds, level) between settled words; their times are good to about 0.1 s."""
        before, word = self.settled[num - 1], self.settled[num]
        from_s = min(before.end_s, word.start_s - 0.2)
        return quietest(self.samples, RATE_HZ, from_s, word.start_s + 0.1)

    def _cut_at(self, num_words: int, cut_s: float) -> None:
        dropped = [i for word in self.settled[:num_words] for i in word.ids]
        self.prompt = [*self.prompt, *dropped][-MAX_PROMPT_TOKENS:]
        self.settled = [
            replace(
                word,
                start_s=max(0.0, word.start_s - cut_s),
                end_s=max(0.0, word.end_s - cut_s),
            )
            for word in self.settled[num_words:]
        ]
        self.drop(cut_s)


def _level(samples: Samples) -> float:
    return float(np.sqrt(np.mean(np.square(samples))))
