"""The conversation on a terminal: one line that grows and settles, then plain text."""

import shutil
from typing import TextIO

_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"


class Screen:
    """Writes what was heard and answered.

    On a terminal the words heard are one line that is redrawn: settled words normal, words that may
    yet change dim. Elsewhere each change is a line of its own, pending words in parentheses.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_tty = out.isatty()
        self._line = ""
        self._in_answer = False

    def hear(self, settled: str, pending: str) -> None:
        """Show the words of the user's turn so far."""
        settled, pending = settled.strip(), pending.strip()
        if self._is_tty:
            self._redraw(settled, pending)
            return
        line = "you  " + f"{settled} {f'({pending})' if pending else ''}".strip()
        if line != self._line and (settled or pending):
            self._line = line
            self._write(line + "\n")

    def heard(self, text: str) -> None:
        """Show the whole turn, and leave its line."""
        if self._is_tty:
            self._write(f"\r\x1b[K{_BOLD}you{_PLAIN}  {text.strip()}\n")
        else:
            self.hear(text, "")
        self._line = ""

    def answer(self, text: str) -> None:
        """Show more of the model's answer."""
        if not self._in_answer:
            self._in_answer = True
            self._write(f"{_BOLD}model{_PLAIN}  " if self._is_tty else "model  ")
            text = text.lstrip()
        self._write(text)

    def end_answer(self) -> None:
        """Leave the answer's line."""
        if self._in_answer:
            self._write("\n")
        self._in_answer = False

    def note(self, text: str) -> None:
        """Say something about the conversation, on a line of its own."""
        self.end_answer()
        if self._is_tty:
            self._write(f"\r\x1b[K{_DIM}{text}{_PLAIN}\n")
        else:
            self._write(f"{text}\n")

    def _redraw(self, settled: str, pending: str) -> None:
        """Keep the line's end in view where the turn is wider than the terminal."""
        room = shutil.get_terminal_size().columns - len("you  ") - 1
        text = f"{settled} {pending}".strip()
        cut = max(0, len(text) - room)
        shown = text[cut:]
        num_settled = max(0, len(settled) - cut)
        self._write(
            f"\r\x1b[K{_BOLD}you{_PLAIN}  {shown[:num_settled]}{_DIM}{shown[num_settled:]}{_PLAIN}"
        )

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
