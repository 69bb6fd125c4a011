"""Text in pictures, by RapidOCR (PP-OCRv4: Latin and Chinese) where the extra `ocr` is installed.

Torch has no part in it: onnxruntime runs a detector of lines over the picture and a recogniser
over each line found, on one core.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sensorium.encoders.media import Pixels

if TYPE_CHECKING:
    from rapidocr_onnxruntime import RapidOCR

logger = logging.getLogger(__name__)

MIN_SIDE_PX = 16
MAX_ASPECT = 10
"""A picture that is lower, or longer in proportion, holds no text for us: what is made of it on the
way to the detector could be much larger than itself.
"""
LINES_AT_ONCE = 2
"""Lines are recognised in passes of so many, about 25 ms each, until enough is read. Passes of six
take as long and leave the process 200 MiB larger.
"""
DETECTOR_PX = 640 * 480
"""Lines are looked for in a picture of at most this size, and read in the whole one: it finds those
of a page of 1024 x 768 as well as the page does, with half the memory.
"""
MIN_CERTAINTY = 0.7


class TextReader:
    """Reads what is written in pictures, top to bottom. Safe to share: one picture at a time.

    All are read in one thread: freed blocks stay with the thread that asked for them, and would
    stay with every encoder thread that ever read a picture.
    """

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
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ocr")

    def read(self, pixels: Pixels, max_characters: int) -> str:
        """Return the lines of an RGB picture [H, W, 3], a space between them; "" without any.

        No further lines are read once there are `max_characters`; the text may be a bit longer.
        Raises nothing: a picture that can't be read is one without text.
        """
        height, width = pixels.shape[:2]
        if min(height, width) < MIN_SIDE_PX or max(height, width) > MAX_ASPECT * min(height, width):
            return ""
        try:
            bgr = np.ascontiguousarray(pixels[..., ::-1])
            return self._thread.submit(self._read, bgr, max_characters).result()
        except Exception:  # the libraries' errors have no common class; labels must go on
            logger.warning("a picture of %d x %d can't be read", width, height, exc_info=True)
            return ""

    def _read(self, bgr: Pixels, max_characters: int) -> str:
        boxes = self._find(bgr)
        text = ""
        for first in range(0, len(boxes), LINES_AT_ONCE):
            lines = self._rapid.get_crop_img_list(bgr, boxes[first : first + LINES_AT_ONCE])
            recognised, _ = self._rapid.text_rec(lines)
            text += "".join(f"{line} " for line, sure, *_ in recognised if sure >= MIN_CERTAINTY)
            if len(text) >= max_characters:
                break
        return text.strip()

    def _find(self, bgr: Pixels) -> list[NDArray[np.float32]]:
        """Return the corners [4, 2] of every line, in pixels, from top to bottom."""
        import cv2

        height, width = bgr.shape[:2]
        scale = min(1.0, (DETECTOR_PX / (height * width)) ** 0.5)
        size = (round(width * scale), round(height * scale))
        boxes, _ = self._rapid.auto_text_det(cv2.resize(bgr, size, interpolation=cv2.INTER_AREA))
        return [corners / np.float32(scale) for corners in boxes or ()]
