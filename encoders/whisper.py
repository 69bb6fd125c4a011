"""Whisper in CTranslate2's format: windows of sound → tokens, their probabilities and times.

Stateless; `speech.py` decides what to listen to and what to believe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ctranslate2
import numpy as np
from numpy.typing import NDArray

from sensorium.encoders.features import FRAMES_PER_S, HOP_SAMPLES, RATE_HZ, LogMel
from sensorium.encoders.media import Samples
from sensorium.encoders.whisper_tokens import WhisperVocabulary, WordTokens, compression_ratio

MAX_FRAMES = 3000
_MAX_TOKENS_PER_S = 8.0  # fast speech has 5
_MAX_LENGTH = 448  # the decoder's positions, prompt and prefix included
_LONGEST_WORD_S = 1.0
_POSITIONS_PER_S = FRAMES_PER_S / 2

Encoding = NDArray[np.float32]
"""The encoder's output for one window, `[frames / 2, D]`."""


@dataclass(frozen=True, slots=True)
class TimedWord(WordTokens):
    """A word of one pass; times in seconds since the window's start, `log_probs` one per token."""

    start_s: float
    end_s: float
    log_probs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """What one pass listens to.

    `frames`: length after padding, equal within a batch. `lead`: samples of silence before the
    sound; times of words don't count them. `prompt`: ids of the text before the
    window, as many within a batch. `prefix`: the words that the window certainly begins with.
    `language`: None for a model that knows only one.
    """

    samples: Samples
    frames: int
    lead: int = 0
    prompt: tuple[int, ...] = ()
    prefix: tuple[WordTokens, ...] = ()
    language: str | None = None

    @property
    def prefix_ids(self) -> list[int]:
        """Ids of the prefix."""
        return [i for word in self.prefix for i in word.ids]

    @property
    def sound_frames(self) -> int:
        """Feature frames that hold sound and not padding, at least 1."""
        num_samples = self.lead + len(self.samples)
        return max(1, min(self.frames, -(-num_samples // HOP_SAMPLES)))


@dataclass(frozen=True, slots=True)
class Hearing:
    """What one pass heard: words (those of the prefix first) and how much to believe them."""

    words: tuple[TimedWord, ...]
    no_speech: float

    @property
    def mean_log_prob(self) -> float:
        """Mean log probability of the text tokens; 0 without any."""
        return mean_log_prob(self.words)

    @property
    def loops(self) -> bool:
        """Tell whether the decoder repeats itself (Radford et al. 2022, 4.5)."""
        return compression_ratio("".join(w.text for w in self.words)) > 2.4


class Whisper:
    """One loaded checkpoint. Calls are batched; `threads` threads may use it at the same time.

    Each call computes on one core: two cores on one call of a model this small help it little
    (tiny.en, a window of 8 s: 262 ms against 238 ms alone), two calls side by side fully (124 ms).
    """

    def __init__(self, model_dir: Path, *, threads: int, compute_type: str = "int8") -> None:
        self._model = ctranslate2.models.Whisper(
            str(model_dir),
            device="cpu",
            compute_type=compute_type,
            intra_threads=1,
            inter_threads=threads,
        )
        self._features = LogMel(self._model.n_mels)
        self.vocabulary = WhisperVocabulary(model_dir)
        self.multilingual: bool = self._model.is_multilingual

    def knows_language(self, language: str) -> bool:
        """Tell whether the model was trained on an ISO 639-1 language."""
        return language == "en" or (self.multilingual and self.vocabulary.knows_language(language))

    def encode(self, windows: Sequence[Window]) -> list[Encoding]:
        """Return one encoding per window.

        Windows are encoded one by one: four of 15 s in a batch take 1.5 times as long as one after
        the other (2-core AMD, int8), because their activations outgrow the cache.
        """
        encodings: list[Encoding] = []
        for window in windows:
            lead = np.zeros(window.lead, np.float32)
            features = self._features([np.concatenate([lead, window.samples])], window.frames)
            encoded = self._model.encode(ctranslate2.StorageView.from_array(features), to_cpu=True)
            encodings.append(np.asarray(encoded)[0])
        return encodings

    def hear(
        self, windows: Sequence[Window], encodings: Sequence[Encoding], beam_size: int
    ) -> list[Hearing]:
        """Decode windows of equal `frames` and prompt length in one batch, and time their words."""
        vocabulary = self.vocabulary
        batch = ctranslate2.StorageView.from_array(np.stack(encodings))
        prompts = [self._prompt(window) for window in windows]
        most_s = max(window.sound_frames for window in windows) / FRAMES_PER_S
        most_tokens = int(most_s * _MAX_TOKENS_PER_S) + 12
        results = self._model.generate(
            batch,
            prompts,
            beam_size=beam_size,
            # CTranslate2 gives half of this to the words, or what the prompt leaves if that is less
            max_length=min(_MAX_LENGTH, max(2 * most_tokens, max(map(len, prompts)) + most_tokens)),
            return_no_speech_prob=True,
        )
        ids = [
            [i for i in result.sequences_ids[0] if i < vocabulary.end_of_text] for result in results
        ]
        words = self._time(windows, encodings, ids)
        return [
            Hearing(heard, result.no_speech_prob)
            for heard, result in zip(words, results, strict=True)
        ]

    def detect_language(self, encoding: Encoding) -> list[tuple[str, float]]:
        """Return (ISO 639-1 code, probability), the best first. Only multilingual models can."""
        batch = ctranslate2.StorageView.from_array(encoding[None])
        ranking = self._model.detect_language(batch)[0]
        return [(token.strip("<|>"), probability) for token, probability in ranking]

    def _prompt(self, window: Window) -> list[int]:
        vocabulary = self.vocabulary
        previous = [vocabulary.start_of_previous, *window.prompt] if window.prompt else []
        start = vocabulary.start_sequence(window.language)
        return [*previous, *start, vocabulary.no_timestamps, *window.prefix_ids]

    def _time(
        self,
        windows: Sequence[Window],
        encodings: Sequence[Encoding],
        ids: Sequence[Sequence[int]],
    ) -> list[tuple[TimedWord, ...]]:
        """Align each window's tokens with its sound; a window without tokens gives no words."""
        timed: list[tuple[TimedWord, ...]] = [()] * len(windows)
        for language in {window.language for window in windows}:
            rows = [i for i, w in enumerate(windows) if w.language == language and ids[i]]
            if not rows:
                continue
            words = [
                [
                    *windows[i].prefix,
                    *self.vocabulary.words(ids[i][len(windows[i].prefix_ids) :], language),
                ]
                for i in rows
            ]
            aligned = self._model.align(
                ctranslate2.StorageView.from_array(np.stack([encodings[i] for i in rows])),
                self.vocabulary.start_sequence(language),
                [[i for word in of_row for i in word.ids] for of_row in words],
                [windows[i].sound_frames for i in rows],
            )
            for i, of_row, alignment in zip(rows, words, aligned, strict=True):
                timed[i] = _timed_words(
                    of_row,
                    alignment.alignments,
                    alignment.text_token_probs,
                    windows[i].lead / RATE_HZ,
                )
        return timed


def mean_log_prob(words: Sequence[TimedWord]) -> float:
    """Return the mean log probability of the tokens of some words; 0 without any."""
    probs = [p for word in words for p in word.log_probs]
    return sum(probs) / len(probs) if probs else 0.0


def _timed_words(
    words: Sequence[WordTokens],
    path: Sequence[tuple[int, int]],
    probs: Sequence[float],
    lead_s: float,
) -> tuple[TimedWord, ...]:
    """Read word times off the warping path of (token, encoder position) pairs.

    A token begins where the path first reaches it (openai/whisper, timing.py), and a word ends
    where the next begins. One that seems longer than a second has a pause before it, if it is the
    first, or after it.
    """
    begins: dict[int, float] = {}
    for token, position in path:
        begins.setdefault(token, max(0.0, position / _POSITIONS_PER_S - lead_s))
    last_s = max(0.0, path[-1][1] / _POSITIONS_PER_S - lead_s) if path else 0.0
    log_probs = [float(np.log(max(p, 1e-9))) for p in probs]
    timed: list[TimedWord] = []
    first = 0
    for word in words:
        after = first + len(word.ids)
        start_s, end_s = begins.get(first, last_s), begins.get(after, last_s)
        if not timed:
            start_s = max(start_s, end_s - _LONGEST_WORD_S)
        end_s = min(end_s, start_s + _LONGEST_WORD_S)
        timed.append(TimedWord(word.text, word.ids, start_s, end_s, tuple(log_probs[first:after])))
        first = after
    return tuple(timed)
