"""Pictures as words, with the real EfficientNet-lite0."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from pictures import load_picture, written

from sensorium.core.sources import resolve
from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.media import Pixels, picture
from sensorium.encoders.ocr import TextReader
from sensorium.encoders.picture_words import PictureWords
from sensorium.encoders.sizing import cells_for, grid

LEOPARD = r" \[picture: leopard 9\d %\]"


class BrokenRapid:
    """A RapidOCR whose detector fails."""

    def auto_text_det(self, bgr: Pixels) -> Any:
        raise ZeroDivisionError("in a library")


@pytest.fixture(scope="module")
def encoder() -> PictureWords:
    torch.set_num_threads(1)
    return PictureWords(resolve("efficientnet-lite0"))


def describe(encoder: PictureWords, clips: list[list[Pixels]]) -> list[Output]:
    """Push one batch of clips; the flush must add nothing."""
    states = [encoder.open(ClipHints()) for _ in clips]
    outputs = encoder.push([tuple(map(picture, clip)) for clip in clips], states)
    ends = encoder.flush(states)
    assert all((end.text, end.problem) == ("", None) for end in ends)
    return outputs


def test_a_picture_is_described_as_soon_as_it_is_there(encoder: PictureWords) -> None:
    state = encoder.open(ClipHints())
    assert not encoder.ready(state, 0)
    assert encoder.ready(state, 1)
    [output] = encoder.push([(picture(load_picture("leopard.jpg")),)], [state])
    assert re.fullmatch(LEOPARD, output.text)
    assert (output.pending, output.rows, output.problem) == ("", (), None)


def test_who_described_it_is_named(encoder: PictureWords) -> None:
    [output] = describe(encoder, [[load_picture("leopard.jpg")]])
    assert output.encoder == encoder.name == encoder.intake.encoder == "efficientnet-lite0"
    reading = PictureWords(resolve("efficientnet-lite0"), TextReader.load())
    assert reading.name == reading.intake.encoder == "efficientnet-lite0+rapidocr"
    assert reading.revision != encoder.revision


def test_each_clip_gets_the_words_of_its_own_pictures(encoder: PictureWords) -> None:
    leopard, orange = load_picture("leopard.jpg"), load_picture("grapefruit_slice.jpg")
    first, second, third = describe(encoder, [[orange], [leopard, orange], [leopard]])
    assert re.fullmatch(r" \[picture: orange \d\d %\]", first.text)
    assert second.text == third.text + first.text
    assert re.fullmatch(LEOPARD, third.text)


def test_a_clip_without_a_picture_has_a_problem(encoder: PictureWords) -> None:
    [output] = encoder.flush([encoder.open(ClipHints())])
    assert output.problem == "There was no picture to look at."
    assert output.text == ""


def test_what_is_written_is_told_beside_the_labels() -> None:
    encoder = PictureWords(resolve("efficientnet-lite0"), TextReader.load())
    [output] = describe(encoder, [[written("TOTAL 12.50")]])
    assert output.text.endswith('; text: "TOTAL 12.50"]')
    [output] = describe(encoder, [[load_picture("leopard.jpg")]])
    assert re.fullmatch(LEOPARD, output.text)


def test_a_reader_that_fails_costs_no_labels() -> None:
    encoder = PictureWords(resolve("efficientnet-lite0"), TextReader(BrokenRapid()))
    [output] = describe(encoder, [[load_picture("leopard.jpg")]])
    assert re.fullmatch(LEOPARD, output.text)


def test_low_detail_leaves_what_labels_need(encoder: PictureWords) -> None:
    intake = encoder.intake
    cells = cells_for("low", intake.max_cells)
    rows, columns = grid(4000, 4000, cell_px=intake.cell_px, max_cells=cells)
    assert rows * intake.cell_px == columns * intake.cell_px == 256


def test_pictures_fit_the_intake_in_any_size(encoder: PictureWords) -> None:
    for shape in ((1, 1), (16, 4000), (480, 640)):
        frame = picture(np.zeros((*shape, 3), np.uint8))
        encoder.intake.check(frame)
        [output] = describe(encoder, [[frame.data[0]]])
        assert output.text.startswith(" [picture: ")
