"""The progress bar on a terminal and in a file."""

import io

from sensorium.gateway.cli.progress import ProgressBar


class Terminal(io.StringIO):
    """A terminal that only remembers what was written."""

    def isatty(self) -> bool:
        return True


def test_terminal_sees_a_bar_that_is_gone_at_the_end() -> None:
    out = Terminal()
    with ProgressBar("model", out) as bar:
        bar.update("fetching", 0, 10)
        bar.update("fetching", 10, 10)
    assert "[████████████████████████] 100 %" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_file_gets_a_line_for_each_task() -> None:
    out = io.StringIO()
    with ProgressBar("model", out) as bar:
        for done in range(5):
            bar.update("fetching", done, 5)
        bar.update("checking", 0, 0)
    assert out.getvalue().splitlines() == ["model: fetching", "model: checking"]
