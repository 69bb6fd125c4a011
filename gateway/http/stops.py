"""Stop strings: end a stream of text before one of them, wherever its pieces are cut."""

from collections.abc import Sequence


class StopStrings:
    """Passes text on until one of `stops` appears; the stop itself is never shown.

    What may be the beginning of a stop is held back until it is decided.

    >>> cut = StopStrings(["END"])
    >>> cut.push("the E"), cut.push("ND of"), cut.stopped
    ('the ', '', True)
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Return what of the text so far may be shown now."""
        if self.stopped:
            return ""
        held = self._held + text
        found = [place for stop in self._stops if (place := held.find(stop)) >= 0]
        if found:
            self.stopped = True
            self._held = ""
            return held[: min(found)]
        keep = max((_overlap(held, stop) for stop in self._stops), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def finish(self) -> str:
        """Return what was held back when the text ends without a stop."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return how many last characters of `text` begin `stop`, without being all of it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
