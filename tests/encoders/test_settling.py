"""Which words may be settled and where a window may be cut; no model."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sensorium.encoders.settling import (
    begins_with,
    cut_candidates,
    num_agreed,
    num_connected,
    quietest,
    spoken,
)


@dataclass(frozen=True)
class Spoken:
    key: str
    start_s: float
    end_s: float


def say(text: str, *, word_s: float = 0.5, start_s: float = 0.0) -> list[Spoken]:
    return [
        Spoken(key, start_s + i * word_s, start_s + (i + 1) * word_s)
        for i, key in enumerate(text.split())
    ]


def test_words_that_two_passes_share_are_agreed() -> None:
    assert num_agreed(["ask", "not", "what"], say("ask not watt your"), 10.0) == 2


def test_agreement_ends_at_the_first_difference_even_if_later_words_match() -> None:
    assert num_agreed(["a", "x", "c"], say("a b c"), 10.0) == 1


def test_words_close_to_the_end_of_the_sound_wait() -> None:
    assert num_agreed(["a", "b", "c"], say("a b c"), 1.2) == 2


def test_a_first_pass_settles_nothing() -> None:
    assert num_agreed([], say("a b c"), 10.0) == 0


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")), st.floats(0, 20))
def test_what_is_agreed_is_a_common_prefix(
    previous: list[str], current: list[str], end_s: float
) -> None:
    words = say(" ".join(current))
    num = num_agreed(previous, words, end_s)
    assert previous[:num] == current[:num]
    assert all(word.end_s <= end_s for word in words[:num])


def made_up(at_s: float) -> list[Spoken]:
    return [Spoken(key, at_s, at_s) for key in ("thank", "you", "for", "watching")]


def test_words_squeezed_into_one_instant_were_made_up() -> None:
    words = say("stop it now", word_s=0.6)
    assert spoken([*words, *made_up(2.0)]) == words


def test_words_before_a_loop_are_kept_and_those_after_it_wait() -> None:
    words = say("ask not what")
    assert spoken([*words, *made_up(1.7), *say("you can do", start_s=2.0)]) == words


def test_made_up_words_at_the_start_leave_the_others() -> None:
    words = say("ask not what", start_s=0.5)
    assert spoken([*made_up(0.2), *words]) == words
    assert spoken(made_up(0.2)) == []


def test_a_short_last_word_was_spoken() -> None:
    words = [*say("with some"), Spoken("sweet", 1.0, 1.02)]
    assert spoken(words) == words


def test_words_end_at_the_first_pause_after_the_settled_ones() -> None:
    words = [*say("yes please"), *say("red or", start_s=3.0), *say("blue", start_s=6.0)]
    assert num_connected(words, 0, 1.5) == 2
    assert num_connected(words, 2, 1.5) == 2
    assert num_connected(words, 3, 1.5) == 4
    assert num_connected(words, 5, 1.5) == 5
    assert num_connected(words, 0, 2.5) == 5


def test_a_hypothesis_begins_with_the_settled_words_or_not() -> None:
    assert begins_with(say("ask not what"), say("ask not"))
    assert begins_with(say("ask"), [])
    assert not begins_with(say("asked not what"), say("ask not"))
    assert not begins_with(say("ask"), say("ask not"))


def test_a_cut_keeps_words_and_sound() -> None:
    words = say("one two three four five six")
    assert list(cut_candidates(words, 2, 1.0, 3.0)) == [1, 2, 3, 4]
    assert list(cut_candidates(words, 2, 2.0, 3.0)) == [1, 2]
    assert list(cut_candidates(words, 6, 0.0, 3.0)) == []
    assert list(cut_candidates([], 0, 0.0, 3.0)) == []


def test_the_quietest_place_is_found() -> None:
    samples = np.full(16_000, 0.5, np.float32)
    samples[8_000:9_000] = 0.0
    place_s, level = quietest(samples, 16_000, 0.2, 0.8)
    assert 0.5 <= place_s <= 0.5625
    assert level < 0.01


def test_no_sound_there_gives_the_place_asked_for() -> None:
    assert quietest(np.zeros(0, np.float32), 16_000, 0.3, 0.6) == (0.3, float("inf"))
