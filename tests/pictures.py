"""Pictures for tests: real photographs, and written words."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from sensorium.encoders.media import Pixels

DATA = Path(__file__).parent / "data"


def load_picture(name: str) -> Pixels:
    """Return a picture of tests/data as RGB [H, W, 3]."""
    with Image.open(DATA / name) as image:
        return np.asarray(image.convert("RGB"))


def written(*lines: str) -> Pixels:
    """Return a white picture of 320 × 480 with black lines of text."""
    image = Image.new("RGB", (480, 320), "white")
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((20, 20 + 50 * number), line, fill="black", font_size=32)
    return np.asarray(image)
