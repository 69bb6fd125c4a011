"""The embedded default's ears: Whisper over a growing window, words settled as they are spoken.

A live clip is heard again at every full second of its own time (never of the wall clock, so that
packet sizes change nothing). Words that two passes agree on are settled; then the window is cut
at a word and goes on with the settled text as prompt. Offline clips are heard in long windows,
once. How Whisper is run stands in whisper.py, the rules of agreement in settling.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sensorium.encoders.base import ClipHints, EncoderSources, Output
from sensorium.encoders.features import HOP_SAMPLES, RATE_HZ
from sensorium.encoders.listening import hear_freely, hear_windows
from sensorium.encoders.media import Intake, MediaFrame
from sensorium.encoders.settling import num_agreed, num_connected, spoken
from sensorium.encoders.speech_clip import PreparedEnd, SpeechClip
from sensorium.encoders.speech_tuning import Tuning as Tuning
from sensorium.encoders.whisper import (
    MAX_FRAMES,
    Hearing,
    TimedWord,
    Whisper,
    Window,
    mean_log_prob,
)


class SpeechEncoder:
    """Transcribes speech; fits `encoders.base.Encoder[SpeechClip]`.

    A clip in a language that the model doesn't know ends with a `problem` instead of words.
    """

    max_batch = 4

    @classmethod
    def load(cls, sources: EncoderSources) -> "SpeechEncoder | None":
        """Return the encoder of the model for the role "speech", None if there is none.

        Raises RuntimeError, ValueError, OSError or KeyError for files that are no such model.
        """
        folder = sources.model("speech")
        return None if folder is None else cls(folder, threads=sources.threads)

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
        self.revision = self.name
        self.intake = Intake(encoder=self.name, rate_hz=RATE_HZ)
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

    def ready(self, state: SpeechClip, num_ticks: int) -> bool:
        """Tell whether a clip with `num_ticks` not yet pushed has reached its next grid point."""
        received = state.received + num_ticks
        if state.hints.live:
            return received // self._grid > state.heard // self._grid
        return received - state.start >= round(self.tuning.longest_s * RATE_HZ)

    def push(self, frames: list[tuple[MediaFrame, ...]], states: list[SpeechClip]) -> list[Output]:
        """Take in more sound of each clip, and hear those that reached a grid point.

        Grid points that passed meanwhile are skipped but for the last. Raises MediaError on a
        frame of another rate.
        """
        for run, clip in zip(frames, states, strict=True):
            for frame in run:
                clip.append(frame)
        self._shorten(states)
        live = [c for c in states if c.hints.live and not c.holds_prepared()]
        due = [c for c in live if self.ready(c, 0)]
        for clip in due:
            clip.heard = clip.received - clip.received % self._grid
        self._guess_languages(due, is_last=False)
        for clip, hearing in self._hear(due):
            self._settle_agreed(clip, hearing)
        return [self._output(clip) for clip in states]

    def anticipate(self, states: list[SpeechClip]) -> None:
        """Hear live clips as `flush` would, and keep the result for it (unless more is said)."""
        clips = [c for c in states if c.hints.live and self._knows_language(c)]
        grid_points = [clip.heard for clip in clips]
        for clip in clips:
            clip.heard = clip.received
        for clip, hearing in self._hear_carefully(clips):
            num = len(clip.settled)
            clip.prepared = PreparedEnd(
                start=clip.start, end=clip.heard, num_settled=num, hearing=hearing
            )
        for clip, heard in zip(clips, grid_points, strict=True):
            clip.heard = heard

    def flush(self, states: list[SpeechClip]) -> list[Output]:
        """End each clip: everything still pending is settled. The states are spent."""
        self._shorten(states)
        heard: list[tuple[SpeechClip, Hearing]] = []
        due: list[SpeechClip] = []
        for clip in states:
            if clip.prepared is not None and clip.holds_prepared():
                clip.heard = clip.prepared.end
                heard.append((clip, clip.prepared.hearing))
            else:
                clip.heard = clip.received
                due.append(clip)
        while heard := [*heard, *self._hear_carefully(due)]:
            due = [clip for clip, hearing in heard if self._settle_rest(clip, hearing)]
            heard = []
        for clip in states:
            clip.pending = ""
        return [self._output(clip) for clip in states]

    # --- passes ---------------------------------------------------------------------------------

    def _hear(self, clips: Sequence[SpeechClip]) -> list[tuple[SpeechClip, Hearing]]:
        """Hear the window of every clip up to its `heard`; clips with a problem are left out."""
        clips = [c for c in clips if c.problem is None and c.heard > c.start]
        windows = [self._window(clip) for clip in clips]
        heard = hear_windows(self._whisper, windows, self.tuning.live_beam)
        return list(zip(clips, heard, strict=True))

    def _hear_carefully(self, clips: Sequence[SpeechClip]) -> list[tuple[SpeechClip, Hearing]]:
        """As `_hear`, with a wide beam and doubtful results checked; files in Whisper's own way."""
        self._guess_languages(clips, is_last=True)
        clips = [c for c in clips if c.problem is None and c.heard > c.start]
        beam = self.tuning.final_beam
        live = [c for c in clips if c.hints.live]
        windows = [self._window(clip) for clip in live]
        doubts = [self.tuning.doubt(clip.window_s) for clip in live]
        heard = hear_freely(self._whisper, windows, beam_size=beam, doubts=doubts)
        files = [c for c in clips if not c.hints.live]
        windows = [replace(self._window(clip), lead=0, frames=MAX_FRAMES) for clip in files]
        heard += hear_windows(self._whisper, windows, beam)
        return list(zip([*live, *files], heard, strict=True))

    def _window(self, clip: SpeechClip) -> Window:
        tuning = self.tuning
        wanted = tuning.lead_s + clip.window_s + tuning.padding_s
        length = next((s for s in tuning.lengths_s if s >= wanted), tuning.lengths_s[-1])
        size = max(n for n in tuning.prompt_sizes if n <= len(clip.prompt))
        return Window(
            samples=clip.window,
            frames=round(length * RATE_HZ / HOP_SAMPLES),
            lead=round(tuning.lead_s * RATE_HZ),
            prompt=tuple(clip.prompt[len(clip.prompt) - size :]),
            prefix=tuple(clip.settled),
            language=clip.language or clip.language_guess,
        )

    def _guess_languages(self, clips: Sequence[SpeechClip], is_last: bool) -> None:
        """Let a multilingual model find out what it listens to; a good guess is one that stays.

        It is believed once its words are likely: whisper-base takes 3 s of Spanish for Greek.
        """
        for clip in clips if self._whisper.multilingual else ():
            if clip.language is not None or clip.problem is not None or clip.heard == clip.start:
                continue
            encoding = self._whisper.encode([self._window(clip)])[0]
            language, probability = self._whisper.detect_language(encoding)[0]
            is_steady = language == clip.language_guess and probability > 0.8
            clip.is_guess_good = is_steady or (clip.window_s >= 5.0 and probability > 0.5)
            clip.language_guess = language
            if is_last:
                clip.language = language

    def _knows_language(self, clip: SpeechClip) -> bool:
        return clip.language is not None or not self._whisper.multilingual

    # --- what to believe ------------------------------------------------------------------------

    def _audible(self, clip: SpeechClip, hearing: Hearing) -> list[TimedWord]:
        """Return the words after the settled ones, or none if there is no speech or only a loop."""
        num = num_connected(hearing.words, len(clip.settled), self.tuning.pause_s)
        words = list(spoken(hearing.words[len(clip.settled) : num]))
        is_long = clip.window_s > 2.0
        unlikely = mean_log_prob(words) < -1.5 and (is_long or hearing.no_speech > 0.3)
        return [] if hearing.no_speech > 0.8 or unlikely else words

    def _is_suspect(self, clip: SpeechClip, words: Sequence[TimedWord]) -> bool:
        """Tell whether a model that knows only English may be listening to something else."""
        if self._whisper.multilingual:
            return False
        return clip.mean_log_prob(words) < self.tuning.min_mean_log_prob

    def _is_trusted(self, clip: SpeechClip, words: Sequence[TimedWord]) -> bool:
        """Tell whether words of a pass may be settled while more sound is to come."""
        if self._whisper.multilingual:
            return clip.language is not None
        return not self._is_suspect(clip, words)

    def _is_foreign(self, clip: SpeechClip, words: Sequence[TimedWord]) -> bool:
        """As `_is_suspect`, with enough sound to be sure."""
        return self._is_suspect(clip, words) and clip.received >= 2 * RATE_HZ

    def _settle_agreed(self, clip: SpeechClip, hearing: Hearing) -> None:
        """After a pass over a live window: settle what agrees with the last one, and cut."""
        tuning = self.tuning
        words = self._audible(clip, hearing)
        if words and clip.is_guess_good and mean_log_prob(words) > tuning.min_mean_log_prob:
            clip.language = clip.language or clip.language_guess
        is_trusted = self._is_trusted(clip, words)
        # both passes ended here, long before the sound does: more will only come in a new window
        last_s = words[-1].end_s if words else clip.window_s - clip.unheard_s
        is_over = len(words) == len(clip.previous) and clip.window_s - last_s > tuning.pause_s
        if words and is_trusted:
            steady = words if is_over else words[:-1]  # the last word may be cut short
            num = num_agreed(clip.previous, steady, clip.window_s - tuning.guard_s)
            clip.settle(words[:num])
            words = words[num:]
        clip.pending = "".join(word.text for word in words) if is_trusted else ""
        clip.previous = [word.key for word in words]
        if is_over and not words and clip.settled:
            clip.cut_after_last()
        elif clip.window_s > tuning.cut_after_s:
            clip.cut(
                keep_words=tuning.keep_words,
                keep_s=tuning.keep_s,
                anywhere_s=tuning.cut_anywhere_s,
            )
        if clip.window_s > tuning.longest_live_s:
            self._settle_long(clip, words)

    def _settle_rest(self, clip: SpeechClip, hearing: Hearing) -> bool:
        """After the last pass: settle all. True if it stopped so early that the rest needs another.

        Whisper may end a transcript long before the sound does, at a change of speakers for
        example.
        """
        words = self._audible(clip, hearing)
        is_lost = clip.is_doubted and not words and clip.num_tokens == 0
        if self._is_foreign(clip, words) or is_lost:
            clip.problem = (
                f"This does not sound like English, the only language {self.name} knows; "
                'set speech = "whisper-base" in [models].'
            )
            return False
        clip.settle(words)
        if not clip.settled or clip.unheard_s <= self.tuning.pause_s:
            return False
        clip.cut_after_last()
        return True

    def _settle_long(self, clip: SpeechClip, words: Sequence[TimedWord]) -> None:
        """Make a window shorter that agreement didn't: settle all but its end, or give it up."""
        until_s = clip.window_s - 2.0
        if self._is_trusted(clip, words):
            clip.settle([word for word in words if word.end_s <= until_s])
        clip.previous.clear()
        if not clip.settled:
            clip.is_doubted = clip.is_doubted or self._is_suspect(clip, words)
            clip.drop(until_s)
        elif len(clip.settled) == 1 or clip.unheard_s > 2.0 + self.tuning.pause_s:
            clip.cut_after_last()
        else:
            clip.cut(keep_words=1, keep_s=0.0, anywhere_s=0.0)

    def _shorten(self, clips: Sequence[SpeechClip]) -> None:
        """Hear and settle most of every window that has grown too long, until all are short."""
        longest = round(self.tuning.longest_s * RATE_HZ)
        while due := [c for c in clips if len(c.samples) > longest]:
            for clip in due:
                clip.heard = clip.start + longest
                if clip.problem is not None:
                    clip.drop(clip.window_s)
            for clip, hearing in self._hear_carefully(due):
                self._settle_long(clip, self._audible(clip, hearing))

    def _output(self, clip: SpeechClip) -> Output:
        words = clip.take_fresh()
        return Output(
            text="".join(word.text for word in words),
            words=words,
            pending=clip.pending,
            language=clip.language if self._whisper.multilingual else "en",
            problem=clip.problem,
            encoder=self.name,
        )
