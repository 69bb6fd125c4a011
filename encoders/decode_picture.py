"""One picture file to pixels: checked before a raster exists, upright, RGB on white, sized.

Runs in the decoder's child process. Colour profiles and gamma are ignored, as in the training of
the towers. Of 16 bits a channel the upper eight are taken; of several pictures in a file the first.
"""

import io
import math
import warnings

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from sensorium.encoders import decode_png, sizing
from sensorium.encoders.decode_job import PICTURE_FORMATS, DecodeLimits, Job
from sensorium.encoders.media import MediaError, MediaFrame, Pixels, picture

_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "AVIF")
_WHOLE_PIXELS = 12_000_000
"""A larger picture is sized in strips, so that no second raster of it is needed."""
_WHOLE_PIXELS_OF_ALPHA = 3_000_000
_STRIP_PIXELS = 1_000_000
_LANCZOS_REACH = 3
_WIDE_MODES = {"I;16", "I;16B", "I;16L", "I;16N"}
_OTHER_MODES = {"I", "F", "LAB", "HSV"}
_RASTER_BYTES = {"JPEG": 4, "PNG": 4, "GIF": 5, "BMP": 4, "TIFF": 8, "WEBP": 17, "AVIF": 14}
"""Bytes a pixel that decoding takes, by trial; a progressive jpeg takes more."""
_PROGRESSIVE_BYTES = 10
_SPARE_BYTES = 40 << 20
"""What sizing takes beside the raster."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation → what turns the stored picture upright."""
TURNED = (5, 6, 7, 8)
"""Orientations of pictures stored with rows and columns exchanged."""
_FROM_THE_END = (3, 4, 7, 8)
"""Orientations whose stored rows (of turned ones: columns) begin at the upright picture's end."""


def prepare() -> None:
    """Load every plugin and set what Pillow keeps per process."""
    Image.init()
    Image.MAX_IMAGE_PIXELS = None  # `_check` is stricter, and comes before any raster as well
    ImageFile.LOAD_TRUNCATED_IMAGES = False


def frame(file: io.BufferedReader, job: Job) -> MediaFrame:
    """Decode and size the picture; raises MediaError and MemoryError."""
    assert job.intake is not None
    cell_px = job.intake.cell_px
    max_cells = sizing.cells_for(job.detail, job.intake.max_cells)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on odd metadata: nobody reads it
        try:
            with Image.open(file, formats=_FORMATS) as image:
                _check(image, job.limits)
                if image.format == "PNG":
                    decode_png.check(file)
                orientation = _orientation(image)
                width, height = image.size[::-1] if orientation in TURNED else image.size
                grid = sizing.grid(height, width, cell_px=cell_px, max_cells=max_cells)
                image.load()
                return picture(sized(image, (grid[0] * cell_px, grid[1] * cell_px), orientation))
        except (MediaError, MemoryError):
            raise
        except UnidentifiedImageError:
            message = f"The file is none of {PICTURE_FORMATS}, or its header is damaged."
            raise MediaError("unsupported_format", message) from None
        except Exception as error:  # Pillow has no class of its own for bad bytes
            raise _damaged(error) from None


def sized(image: Image.Image, size: tuple[int, int], orientation: int = 1) -> Pixels:
    """Return `image` turned upright and scaled to `size` (height, width), by Lanczos, in RGB.

    Equal to Pillow's `resize` of the whole upright picture, but for large ones, which are scaled in
    strips: the weights' rounding can then move a value by one level.
    """
    height, width = size
    is_turned = orientation in TURNED
    source_width, source_height = image.size[::-1] if is_turned else image.size
    scale = source_height / height
    reach = math.ceil(_LANCZOS_REACH * max(scale, 1.0)) + 1
    num_pixels = source_width * source_height
    is_whole = num_pixels <= (_WHOLE_PIXELS_OF_ALPHA if _has_alpha(image) else _WHOLE_PIXELS)
    strip_rows = height if is_whole else math.ceil(height * _STRIP_PIXELS / num_pixels)
    pixels = np.empty((height, width, 3), np.uint8)
    for start in range(0, height, strip_rows):
        end = min(start + strip_rows, height)
        top = max(0, math.floor(start * scale) - reach)
        bottom = min(source_height, math.ceil(end * scale) + reach)
        strip = _rgb(_upright_rows(image, top, bottom, orientation))
        box = (0, start * scale - top, source_width, end * scale - top)
        part = strip.resize((width, end - start), Image.Resampling.LANCZOS, box=box)
        pixels[start:end] = np.asarray(part)
    return pixels


def _upright_rows(image: Image.Image, top: int, bottom: int, orientation: int) -> Image.Image:
    """Return rows `top` to `bottom` of the upright picture, from the stored one."""
    width, height = image.size
    length = width if orientation in TURNED else height
    if orientation in _FROM_THE_END:
        top, bottom = length - bottom, length - top
    if (top, bottom) != (0, length):
        is_turned = orientation in TURNED
        image = image.crop((top, 0, bottom, height) if is_turned else (0, top, width, bottom))
    turn = _UPRIGHT.get(orientation)
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    """Return it in RGB, what is transparent over white."""
    if image.mode in _WIDE_MODES:
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if _has_alpha(image):
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        white.alpha_composite(image)
        image = white
    return image if image.mode == "RGB" else image.convert("RGB")


def _has_alpha(image: Image.Image) -> bool:
    return image.mode in ("LA", "PA", "RGBA", "La", "RGBa") or (
        image.info.get("transparency") is not None
    )


def _check(image: Image.Image, limits: DecodeLimits) -> None:
    """Raise MediaError for what the header promises, before there is a raster."""
    width, height = image.size
    name = image.format or ""
    found = f"The picture has {width} x {height} pixels"
    if min(width, height) < 1:
        raise MediaError("damaged", f"{found}: it is empty.")
    if max(width, height) > limits.max_side_px:
        raise MediaError("too_large", f"{found}; a side may have {limits.max_side_px}.")
    bytes_a_pixel = _RASTER_BYTES.get("JPEG" if name == "MPO" else name, 8)
    if image.info.get("progressive"):
        bytes_a_pixel, name = _PROGRESSIVE_BYTES, "progressive JPEG"
    memory = (limits.max_memory_mib << 20) - _SPARE_BYTES
    max_pixels = min(limits.max_pixels, memory // bytes_a_pixel)
    if width * height > max_pixels:
        limit = f"a {name} picture may have {max_pixels / 1e6:.3g} million"
        raise MediaError("too_large", f"{found} ({width * height / 1e6:.3g} million); {limit}.")
    if image.mode in _OTHER_MODES:
        message = f"Pixels of the mode {image.mode} aren't taken: send 8 or 16 bits a channel."
        raise MediaError("unsupported_format", message)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # EXIF is a small TIFF of its own: broken, the picture counts as upright
        return 1


def _damaged(error: Exception) -> MediaError:
    if isinstance(error, OSError) and "truncated" in str(error):
        return MediaError("truncated", "The picture is cut off: its file ends too early.")
    return MediaError("damaged", "The picture is damaged: it can't be decoded.")
