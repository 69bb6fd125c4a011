"""Reading text in pictures, with the real models of the extra `ocr`."""

import logging
import os
import sys
from typing import Any

import numpy as np
import pytest
from pictures import load_picture, written

from sensorium.encoders.media import Pixels
from sensorium.encoders.ocr import DETECTOR_PX, LINES_AT_ONCE, TextReader


@pytest.fixture(scope="module")
def reader() -> TextReader:
    found = TextReader.load()
    assert found is not None, "the extra `ocr` belongs to the tests' environment"
    return found


def test_lines_are_read_from_top_to_bottom(reader: TextReader) -> None:
    assert reader.read(written("TOTAL 12.50", "THANK YOU"), 400) == "TOTAL 12.50 THANK YOU"


def test_a_picture_without_text_gives_none(reader: TextReader) -> None:
    assert reader.read(load_picture("grapefruit_slice.jpg"), 400) == ""


def test_reading_ends_when_there_is_enough(reader: TextReader) -> None:
    page = written("AAAAA", "BBBBB", "CCCCC", "DDDDD", "EEEEE")
    assert LINES_AT_ONCE == 2
    assert reader.read(page, 20) == "AAAAA BBBBB CCCCC DDDDD"
    assert reader.read(page, 100) == "AAAAA BBBBB CCCCC DDDDD EEEEE"


def test_lines_of_a_large_page_are_read_where_they_stand(reader: TextReader) -> None:
    page = np.full((960, 800, 3), 255, np.uint8)
    page[600:920, 300:780] = written("BOTTOM RIGHT")
    page[:320, :480] = written("TOP LEFT")
    assert page.shape[0] * page.shape[1] > DETECTOR_PX
    assert reader.read(page, 400) == "TOP LEFT BOTTOM RIGHT"


@pytest.mark.parametrize("shape", [(15, 400), (400, 15), (40, 401), (1, 786_432)])
def test_strips_that_would_grow_on_the_way_are_not_tried(
    reader: TextReader, shape: tuple[int, int]
) -> None:
    assert reader.read(np.zeros((*shape, 3), np.uint8), 400) == ""


def test_it_reads_in_one_thread_of_its_own() -> None:
    before = len(os.listdir("/proc/self/task"))
    reader = TextReader.load()
    assert reader is not None
    reader.read(written("TOTAL 12.50"), 400)
    assert len(os.listdir("/proc/self/task")) <= before + 1


class Broken:
    """A RapidOCR whose detector fails."""

    def auto_text_det(self, bgr: Pixels) -> Any:
        raise ZeroDivisionError("in a library")


def test_what_cannot_be_read_has_no_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert TextReader(Broken()).read(written("TOTAL"), 400) == ""
    assert "a picture of 480 x 320 can't be read" in caplog.text


def test_without_the_extra_there_is_no_reader(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr_onnxruntime", None)
    with caplog.at_level(logging.INFO):
        assert TextReader.load() is None
    assert "pip install 'sensorium[ocr]'" in caplog.text
