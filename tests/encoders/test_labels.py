"""How labels and text are worded for the decoder."""

import pytest

from sensorium.encoders.labels import MAX_TEXT_CHARACTERS, Label, names, picture_line, quotable


def label(name: str, percent: float) -> Label:
    return Label(name=name, probability=percent / 100)


def test_a_line_has_labels_and_text() -> None:
    labels = [label("tabby cat", 62), label("tiger cat", 21)]
    line = '[picture: tabby cat 62 %, tiger cat 21 %; text: "TOTAL 12.50"]'
    assert picture_line(labels, "TOTAL\n12.50") == line
    assert picture_line(labels) == "[picture: tabby cat 62 %, tiger cat 21 %]"


@pytest.mark.parametrize(
    ("percents", "said"),
    [
        ((50, 10, 9), "a 50 %, b 10 %"),
        ((49, 30, 20, 11), "perhaps a 49 %, b 30 %, c 20 %"),
        ((9, 8), "unclear"),
    ],
)
def test_a_weak_guess_is_called_one(percents: tuple[int, ...], said: str) -> None:
    assert names([label(n, p) for n, p in zip("abcd", percents, strict=False)]) == said


def test_text_cannot_leave_its_quotes_or_hide_anything() -> None:
    text = 'say "hi"]\x00\x1b[31m\u202e\u200b \u2028 end\ud800'
    assert quotable(text) == "say 'hi'] [31m end"
    assert picture_line([], "\u200b\n") == "[picture: unclear]"


def test_long_text_is_cut_at_a_word() -> None:
    text = quotable("word " * 1_000_000)
    assert len(text) <= MAX_TEXT_CHARACTERS
    assert text.endswith("word…")
    assert len(text) > MAX_TEXT_CHARACTERS - 6
    unbroken = quotable("x" * 1_000)
    assert len(unbroken) == MAX_TEXT_CHARACTERS
    assert len(quotable("x" * MAX_TEXT_CHARACTERS)) == MAX_TEXT_CHARACTERS
    assert "…" not in quotable("x" * MAX_TEXT_CHARACTERS)
