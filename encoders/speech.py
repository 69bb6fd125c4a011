"""The embedded default's ears: Whisper over a growing window, words settled as they are spoken.

A live clip is heard again at every full second of its own time (never of the wall clock, so that
packet sizes change nothing). Words that two passes agree on are settled; then the window is cut
at a word and goes on with the settled text as prompt. Offline clips are heard in long windows,
once. How Whisper is run stands in whisper.py, the rules of agreement in settling.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from sensorium.encoders.base import ClipHints, Output, Word
from sensorium.encoders.features import HOP_SAMPLES, RATE_HZ
from sensorium.encoders.media import AudioFrame, MediaError, Samples
from sensorium.encoders.settling import cut_candidates, num_agreed, quietest
from sensorium.encoders.whisper import MAX_FRAMES, Hearing, TimedWord, Whisper, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What the recogniser trades between delay, cost and accuracy.

    `lengths_s`: padded window lengths; a window takes the shortest that leaves `padding_s` of
    silence after it. Few lengths, so that streams share batches. `prompt_sizes`: likewise for the
    number of prompt tokens. `guard_s`: words that end this close to the end of the sound are not
    settled. A live window is cut once it is longer than `cut_after_s`, and keeps `keep_words`
    settled words and `keep_s` of sound. A window never exceeds `longest_live_s` or `longest_s`.
    """

    grid_s: float = 1.0
    lengths_s: tuple[float, ...] = (12.0, 16.0, 22.0, 30.0)
    padding_s: float = 6.0
    prompt_sizes: tuple[int, ...] = (0, 16, 64, 160)
    live_beam: int = 2
    final_beam: int = 5
    guard_s: float = 0.4
    cut_after_s: float = 7.0
    keep_words: int = 2
    keep_s: float = 2.0
    longest_live_s: float = 16.0
    longest_s: float = 28.0
    min_mean_log_prob: float = -0.65


@dataclass(slots=True)
class SpeechClip:
    """State of one clip; owned by the caller, changed only by the encoder.

    `samples` is the open window, which begins `start` samples after the clip does, followed by
    what has come after the last grid point, `heard`. `settled` are the window's settled words,
    their times relative to it; `previous` are the keys of the last pass's other words. `prompt`
    holds the ids of the text before the window. `log_prob` and `num_tokens` sum over all settled
    words; `fresh` are those not yet handed out.
    """

    hints: ClipHints
    language: str | None
    prompt: list[int]
    samples: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    start: int = 0
    heard: int = 0
    settled: list[TimedWord] = field(default_factory=list)
    previous: list[str] = field(default_factory=list)
    pending: str = ""
    log_prob: float = 0.0
    num_tokens: int = 0
    problem: str | None = None
    fresh: list[Word] = field(default_factory=list)

    @property
    def received(self) -> int:
        """Samples since the clip began."""
        return self.start + len(self.samples)

    @property
    def window_s(self) -> float:
        """Seconds from the window's start to the last grid point."""
        return (self.heard - self.start) / RATE_HZ


class SpeechEncoder:
    """Transcribes speech; fits `encoders.base.Encoder[SpeechClip]`.

    A clip in a language that the model doesn't know ends with a `problem` instead of words.
    """

    rate_hz = RATE_HZ

    def __init__(
        self,
        model_dir: Path,
        *,
        threads: int,
        compute_type: str = "int8",
        name: str = "",
        tuning: Tuning | None = None,
    ) -> None:
        self.name = name or model_dir.name
        self.tuning = tuning or Tuning()
        self._whisper = Whisper(model_dir, threads=threads, compute_type=compute_type)
        self._grid = round(self.tuning.grid_s * RATE_HZ)

    def open(self, hints: ClipHints) -> SpeechClip:
        """Return the state of a new clip."""
        text = " ".join(hints.prompt.split())
        language = hints.language.split("-")[0].lower() if hints.language else None
        known = language is None or self._whisper.knows_language(language)
        return SpeechClip(
            hints=hints,
            language=language if known and self._whisper.multilingual else None,
            prompt=self._whisper.vocabulary.encode(f" {text}") if text else [],
            problem=None if known else f"{self.name} doesn't know the language {language!r}.",
        )

    def ready(self, state: SpeechClip, num_samples: int) -> bool:
        """Tell whether a clip with `num_samples` not yet pushed has reached its next grid point."""
        received = state.received + num_samples
        if state.hints.live:
            return received // self._grid > state.heard // self._grid
        return received - state.start >= round(self.tuning.longest_s * RATE_HZ)

    def push(self, frames: list[AudioFrame], states: list[SpeechClip]) -> list[Output]:
        """Take in one more frame of each clip, and hear those that reached a grid point.

        Grid points that passed meanwhile are skipped but for the last. Raises MediaError on a
        frame of another rate.
        """
        for frame, clip in zip(frames, states, strict=True):
            _append(clip, frame)
        self._shorten(states)
        due = [c for c in states if c.hints.live and self.ready(c, 0)]
        for clip in due:
            clip.heard = clip.received - clip.received % self._grid
        for clip, hearing in self._hear(due, self.tuning.live_beam):
            self._settle_agreed(clip, hearing)
        return [self._output(clip) for clip in states]

    def flush(self, states: list[SpeechClip]) -> list[Output]:
        """End each clip: everything still pending is settled. The states are spent."""
        self._shorten(states)
        for clip in states:
            clip.heard = clip.received
        for clip, hearing in self._hear_carefully(states):
            words = self._audible(clip, hearing)
            if self._is_foreign(clip, words):
                clip.problem = (
                    f"This does not sound like English, the only language {self.name} knows; "
                    'set speech = "whisper-base" in [models].'
                )
            else:
                _settle(clip, words)
        for clip in states:
            clip.pending = ""
        return [self._output(clip) for clip in states]

    # --- passes ---------------------------------------------------------------------------------

    def _hear(
        self, clips: Sequence[SpeechClip], beam_size: int
    ) -> list[tuple[SpeechClip, Hearing]]:
        """Hear the window of every clip up to its `heard`; clips with a problem are left out."""
        clips = [c for c in clips if c.problem is None and c.heard > c.start]
        return list(
            zip(clips, self._hear_windows([self._window(c) for c in clips], beam_size), strict=True)
        )

    def _hear_carefully(self, clips: Sequence[SpeechClip]) -> list[tuple[SpeechClip, Hearing]]:
        """As `_hear`, with a wide beam, and doubtful results checked against the full 30 s.

        Loops come from short padding (DATA measured: none with 30 s), and a prompt can mislead.
        """
        heard = self._hear(clips, self.tuning.final_beam)
        doubtful = [
            i
            for i, (_, hearing) in enumerate(heard)
            if hearing.words and (hearing.loops or hearing.mean_log_prob < -0.5)
        ]
        windows = [replace(self._window(heard[i][0]), frames=MAX_FRAMES) for i in doubtful]
        for i, again in zip(
            doubtful, self._hear_windows(windows, self.tuning.final_beam), strict=True
        ):
            clip, hearing = heard[i]
            if not again.loops and (hearing.loops or again.mean_log_prob > hearing.mean_log_prob):
                heard[i] = (clip, again)
        return heard

    def _hear_windows(self, windows: Sequence[Window], beam_size: int) -> list[Hearing]:
        """Hear windows in as few batches as their shapes allow."""
        shapes = {(w.frames, len(w.prompt)) for w in windows}
        hearings: dict[int, Hearing] = {}
        for shape in sorted(shapes):
            rows = [i for i, w in enumerate(windows) if (w.frames, len(w.prompt)) == shape]
            batch = [windows[i] for i in rows]
            heard = self._whisper.hear(batch, self._whisper.encode(batch), beam_size)
            hearings.update(zip(rows, heard, strict=True))
        return [hearings[i] for i in range(len(windows))]

    def _window(self, clip: SpeechClip) -> Window:
        tuning = self.tuning
        wanted = clip.window_s + tuning.padding_s
        length = next((s for s in tuning.lengths_s if s >= wanted), tuning.lengths_s[-1])
        size = max(n for n in tuning.prompt_sizes if n <= len(clip.prompt))
        return Window(
            samples=clip.samples[: clip.heard - clip.start],
            frames=round(length * RATE_HZ / HOP_SAMPLES),
            prompt=tuple(clip.prompt[len(clip.prompt) - size :]),
            prefix=tuple(clip.settled),
            language=clip.language,
        )

    # --- what to believe ------------------------------------------------------------------------

    def _audible(self, clip: SpeechClip, hearing: Hearing) -> list[TimedWord]:
        """Return the words after the settled ones, or none if there is no speech or only a loop."""
        words = list(hearing.words[len(clip.settled) :])
        mean = _mean_log_prob(words)
        silent = hearing.no_speech > 0.8 or (hearing.no_speech > 0.3 and mean < -1.5)
        if hearing.loops or (silent and not clip.settled):
            return []
        return words

    def _is_foreign(self, clip: SpeechClip, words: Sequence[TimedWord]) -> bool:
        """Tell whether a model that knows only English listens to something else."""
        if self._whisper.multilingual:
            return False
        probs = [p for word in words for p in word.log_probs]
        num_tokens = clip.num_tokens + len(probs)
        total = clip.log_prob + sum(probs)
        return num_tokens >= 6 and total / num_tokens < self.tuning.min_mean_log_prob

    def _settle_agreed(self, clip: SpeechClip, hearing: Hearing) -> None:
        """After a pass over a live window: settle what agrees with the last one, and cut."""
        tuning = self.tuning
        words = self._audible(clip, hearing)
        if words and not self._is_foreign(clip, words):
            num = num_agreed(clip.previous, words, clip.window_s - tuning.guard_s)
            _settle(clip, words[:num])
            words = words[num:]
            clip.pending = "".join(word.text for word in words)
        clip.previous = [word.key for word in words]
        if clip.window_s > tuning.cut_after_s:
            _cut(clip, tuning.keep_words, tuning.keep_s)
        if clip.window_s > tuning.longest_live_s:
            self._settle_long(clip, words)

    def _settle_long(self, clip: SpeechClip, words: Sequence[TimedWord]) -> None:
        """Make a window shorter that agreement didn't: settle all but its end, or give it up."""
        until_s = clip.window_s - 2.0
        if words and not self._is_foreign(clip, words):
            _settle(clip, [word for word in words if word.end_s <= until_s])
            _cut(clip, 1, 0.0)
        if clip.window_s > until_s:
            clip.settled.clear()
            _drop(clip, until_s)
        clip.previous.clear()

    def _shorten(self, clips: Sequence[SpeechClip]) -> None:
        """Hear and settle most of every window that has grown too long, until all are short."""
        longest = round(self.tuning.longest_s * RATE_HZ)
        while due := [c for c in clips if len(c.samples) > longest]:
            for clip in due:
                clip.heard = clip.start + longest
                if clip.problem is not None:
                    _drop(clip, clip.window_s)
            for clip, hearing in self._hear_carefully(due):
                self._settle_long(clip, self._audible(clip, hearing))

    def _output(self, clip: SpeechClip) -> Output:
        words, clip.fresh = tuple(clip.fresh), []
        return Output(
            text="".join(word.text for word in words),
            words=words,
            pending=clip.pending,
            language=clip.language if self._whisper.multilingual else "en",
            problem=clip.problem,
            encoder=self.name,
        )


def _append(clip: SpeechClip, frame: AudioFrame) -> None:
    if frame.rate_hz != RATE_HZ:
        raise MediaError(
            "unsupported_rate", f"speech must come at {RATE_HZ} Hz, this frame has {frame.rate_hz}"
        )
    finite = np.nan_to_num(frame.samples, nan=0.0, posinf=0.0, neginf=0.0)
    clip.samples = np.concatenate([clip.samples, finite.astype(np.float32, copy=False)])


def _settle(clip: SpeechClip, words: Sequence[TimedWord]) -> None:
    start_s = clip.start / RATE_HZ
    for word in words:
        clip.settled.append(word)
        clip.log_prob += sum(word.log_probs)
        clip.num_tokens += len(word.log_probs)
        probability = float(np.exp(np.mean(word.log_probs)))
        clip.fresh.append(
            Word(
                text=word.text,
                start_s=start_s + word.start_s,
                end_s=start_s + word.end_s,
                probability=probability,
            )
        )


def _cut(clip: SpeechClip, keep_words: int, keep_s: float) -> None:
    """Cut the window at the quietest border of its settled words; their text becomes prompt."""
    places = cut_candidates(clip.settled, keep_words, keep_s, clip.window_s)
    if not places:
        return
    borders = {i: quietest(clip.samples, RATE_HZ, _border(clip, i)) for i in places}
    num = min(places, key=lambda i: borders[i][1])
    cut_s = borders[num][0]
    clip.prompt += [i for word in clip.settled[:num] for i in word.ids]
    clip.settled = [_shifted(word, cut_s) for word in clip.settled[num:]]
    _drop(clip, cut_s)


def _border(clip: SpeechClip, num: int) -> float:
    """Seconds at which the settled word `num` begins, or the last one ends."""
    settled = clip.settled
    return settled[num].start_s if num < len(settled) else settled[-1].end_s


def _shifted(word: TimedWord, by_s: float) -> TimedWord:
    return replace(word, start_s=max(0.0, word.start_s - by_s), end_s=max(0.0, word.end_s - by_s))


def _drop(clip: SpeechClip, seconds: float) -> None:
    """Forget the first `seconds` of the window."""
    num_samples = min(len(clip.samples), round(seconds * RATE_HZ))
    clip.samples = clip.samples[num_samples:]
    clip.start += num_samples


def _mean_log_prob(words: Sequence[TimedWord]) -> float:
    probs = [p for word in words for p in word.log_probs]
    return sum(probs) / len(probs) if probs else 0.0
