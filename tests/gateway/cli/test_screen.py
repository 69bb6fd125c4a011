"""What stands on a terminal, and in a file, while somebody speaks and is answered."""

import io

import pytest

from sensorium.gateway.cli.screen import Screen


class Terminal(io.StringIO):
    """A terminal that only remembers what was written."""

    def isatty(self) -> bool:
        return True


def test_terminal_redraws_one_line_with_pending_words_dim() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.hear("What is", "the cap")
    screen.hear("What is the capital", "")
    assert out.getvalue().count("\n") == 0
    assert out.getvalue().count("\r\x1b[K") == 2
    assert "What is\x1b[2m the cap" in out.getvalue()
    screen.heard("What is the capital?")
    assert out.getvalue().endswith("What is the capital?\n")


def test_turn_wider_than_the_terminal_shows_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = Terminal()
    Screen(out).hear("one two three four five", "six seven")
    drawn = out.getvalue().replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert drawn.endswith("five six seven")
    assert "three" not in drawn


def test_file_gets_one_line_for_each_change() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.hear("What is", "the cap")
    screen.hear("What is", "the cap")
    screen.heard("What is the capital?")
    screen.answer(" Par")
    screen.answer("is.")
    screen.end_answer()
    screen.note("done")
    assert out.getvalue().splitlines() == [
        "you  What is (the cap)",
        "you  What is the capital?",
        "model  Paris.",
        "done",
    ]
