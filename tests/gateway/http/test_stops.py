"""Stop strings, wherever the text is cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sensorium.gateway.http.stops import StopStrings


def shown(stops: list[str], *texts: str) -> str:
    cut = StopStrings(stops)
    pieces = [cut.push(text) for text in texts]
    return "".join(pieces) + ("" if cut.stopped else cut.finish())


@given(
    st.text("ab", max_size=30), st.lists(st.integers(0, 30)), st.sampled_from(["ab", "aab", "bb"])
)
def test_any_cut_shows_the_text_before_the_first_stop(
    text: str, cuts: list[int], stop: str
) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    texts = [text[start:end] for start, end in pairwise(edges)]
    assert shown([stop], *texts) == text.partition(stop)[0]


def test_earliest_of_several_stops_wins() -> None:
    assert shown(["END", "\n"], "one\ntwo END") == "one"


def test_text_that_cannot_become_a_stop_is_shown_at_once() -> None:
    cut = StopStrings(["END"])
    assert cut.push("the E") == "the "
    assert cut.push("gg") == "Egg"
    assert cut.finish() == ""


def test_without_stops_everything_passes() -> None:
    assert shown([], "a", "b") == "ab"
