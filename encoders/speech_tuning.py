"""What the speech recogniser trades between delay, cost and accuracy."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The recogniser's settings; the defaults were measured with bench/wer_offline.py.

    `lengths_s`: padded window lengths; a window takes the shortest that leaves `padding_s` of
    silence after it. Few lengths, so that streams share batches. `lead_s` of silence go before a
    window, because Whisper mishears words at the very start. `prompt_sizes`: likewise for the
    number of prompt tokens. Results of a last pass below `doubtful_log_prob` are heard again in
    another way; so are those of windows up to `short_s` below `doubtful_if_short`, for a short
    question has little context to be heard by. `guard_s`: words that end this close to the end of
    the sound are not settled: what follows a word decides what it is heard as. A live window is cut
    once it is longer than `cut_after_s`, and keeps `keep_words` settled words and `keep_s` of
    sound: at an end of a sentence, past `cut_anywhere_s` at any word, and after the last word if
    `pause_s` follow. It never exceeds `longest_live_s`, a window of an offline clip `longest_s`.
    Below `min_mean_log_prob` a model for English alone is taken to hear something else: English
    clips of all kinds reach -0.47, Spanish, French, German and Italian ones -0.75 to -1.5.
    """

    grid_s: float = 1.0
    lengths_s: tuple[float, ...] = (12.0, 16.0, 22.0, 30.0)
    lead_s: float = 1.0
    padding_s: float = 5.0
    prompt_sizes: tuple[int, ...] = (0, 16, 64, 160)
    live_beam: int = 2
    final_beam: int = 5
    doubtful_log_prob: float = -0.4
    short_s: float = 4.0
    doubtful_if_short: float = -0.25
    guard_s: float = 2.0
    cut_after_s: float = 7.0
    cut_anywhere_s: float = 12.0
    keep_words: int = 2
    keep_s: float = 2.0
    longest_live_s: float = 16.0
    longest_s: float = 28.0
    pause_s: float = 1.5
    min_mean_log_prob: float = -0.65

    def doubt(self, window_s: float) -> float:
        """Return the mean log probability below which a window's last pass is doubtful."""
        return self.doubtful_if_short if window_s <= self.short_s else self.doubtful_log_prob
