"""Text in pictures, by RapidOCR (PP-OCRv4: Latin and Chinese) where the extra `ocr` is installed.

Torch has no part in it: onnxruntime runs a detector of lines over the picture and a recogniser
over each line found, on the one core of the caller.
"""

import logging
import threading
from typing import TYPE_CHECKING

import numpy as np

from sensorium.encoders.media import Pixels

if TYPE_CHECKING:
    from rapidocr_onnxruntime import RapidOCR

logger = logging.getLogger(__name__)

MIN_SIDE_PX = 16
MAX_ASPECT = 10
"""A picture that is lower, or longer in proportion, holds no text for us: what is made of it on the
way to the detector could be much larger than itself.
"""
LINES_AT_ONCE = 6
"""Lines are recognised in passes of so many, about 25 ms each, until enough is read."""
MIN_CERTAINTY = 0.7


class TextReader:
    """Reads what is written in pictures, top to bottom. Safe to share: one picture at a time."""

    name = "rapidocr"

    @classmethod
    def load(cls) -> "TextReader | None":
        """Return a reader, None if the extra isn't installed or doesn't work on this machine."""
        try:
            import cv2
            from rapidocr_onnxruntime import RapidOCR
        except ImportError as error:  # also one of its libraries: opencv wants some of the system's
            logger.info("pictures are not read (%s): pip install 'sensorium[ocr]'", error)
            return None
        cv2.setNumThreads(1)
        # "max": never enlarged, so that the work is bounded by the size of the picture.
        return cls(RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1, det_limit_type="max"))

    def __init__(self, rapid: "RapidOCR") -> None:
        self._rapid = rapid
        self._turn = threading.Lock()  # it keeps notes of the picture in work on itself

    def read(self, pixels: Pixels, max_characters: int) -> str:
        """Return the lines of an RGB picture [H, W, 3], a space between them; "" without any.

        No further lines are read once there are `max_characters`; the text may be a bit longer.
        Raises nothing: a picture that can't be read is one without text.
        """
        height, width = pixels.shape[:2]
        if min(height, width) < MIN_SIDE_PX or max(height, width) > MAX_ASPECT * min(height, width):
            return ""
        try:
            with self._turn:
                return self._read(np.ascontiguousarray(pixels[..., ::-1]), max_characters)
        except (
            Exception
        ):  # of opencv, onnxruntime or shapely, of no common class; labels must go on
            logger.warning("a picture of %d x %d can't be read", width, height, exc_info=True)
            return ""

    def _read(self, bgr: Pixels, max_characters: int) -> str:
        boxes, _ = self._rapid.auto_text_det(bgr)
        text = ""
        for first in range(0, len(boxes or ()), LINES_AT_ONCE):
            lines = self._rapid.get_crop_img_list(bgr, boxes[first : first + LINES_AT_ONCE])
            recognised, _ = self._rapid.text_rec(lines)
            text += "".join(f"{line} " for line, sure, *_ in recognised if sure >= MIN_CERTAINTY)
            if len(text) >= max_characters:
                break
        return text.strip()
