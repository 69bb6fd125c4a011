"""What was seen, as one line for a language model: names, how sure they are, text that was read.

    [picture: tabby cat 62 %, tiger cat 21 %; text: "TOTAL 12.50"]

A weak guess is called one: "perhaps". Nothing worth saying is "unclear". Pure words, no network.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

SURE = 0.5
"""A best label of less probability is a guess."""
WORTH_SAYING = 0.1
"""Labels of less probability are left out."""
MAX_LABELS = 3
MAX_TEXT_CHARACTERS = 400
"""About 100 positions of the decoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The name of a class and its probability in [0, 1]."""

    name: str
    probability: float


def picture_line(labels: Sequence[Label], text: str = "") -> str:
    """Describe one picture by its labels, best first, and by what is written in it."""
    written = f'; text: "{quotable(text)}"' if quotable(text) else ""
    return f"[picture: {names(labels)}{written}]"


def names(labels: Sequence[Label]) -> str:
    """Say what labels are worth: `leopard 93 %`, `perhaps menu 31 %, web site 25 %`, `unclear`."""
    said = [label for label in labels[:MAX_LABELS] if label.probability >= WORTH_SAYING]
    if not said:
        return "unclear"
    listed = ", ".join(f"{label.name} {100 * label.probability:.0f} %" for label in said)
    return listed if said[0].probability >= SURE else f"perhaps {listed}"


def quotable(text: str) -> str:
    """Return text that can stand between double quotes on one line.

    At most MAX_TEXT_CHARACTERS, cut at a word if one ends in the last quarter; no control or
    invisible characters; runs of white space become one space, double quotes single ones.
    """
    visible = "".join(
        " " if unicodedata.category(c)[0] in "ZC" else c for c in text[: 4 * MAX_TEXT_CHARACTERS]
    )
    line = " ".join(visible.replace('"', "'").split())
    if len(line) <= MAX_TEXT_CHARACTERS:
        return line
    kept = line[: MAX_TEXT_CHARACTERS - 1]
    end = kept.rfind(" ")
    return (kept[:end] if end > 3 * MAX_TEXT_CHARACTERS // 4 else kept) + "…"
