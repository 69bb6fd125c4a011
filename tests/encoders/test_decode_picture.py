"""Pictures, good and bad, through a decoder of their own."""

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from media_files import STILLS, noise, picture_file
from PIL import Image, ImageOps

from sensorium.encoders.decode import DecodeLimits, decode_image
from sensorium.encoders.decode_picture import sized
from sensorium.encoders.media import MediaError, Pixels

NOISE = noise(37, 53)
CELLS = replace(STILLS, cell_px=28, max_cells=4096)


async def pixels(file: bytes) -> Pixels:
    frame = await decode_image(file, STILLS)
    assert (frame.pts, frame.rate_hz) == (0, 1_000_000)
    assert frame.data.dtype == np.uint8
    return frame.data[0]


async def refused(file: bytes, limits: DecodeLimits | None = None) -> MediaError:
    with pytest.raises(MediaError) as raised:
        await decode_image(file, STILLS, limits=limits)
    assert str(raised.value).endswith(".")
    return raised.value


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("PNG", {}),
        ("PNG", {"compress_level": 0}),
        ("WEBP", {"lossless": True}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_deflate"}),
        ("BMP", {}),
    ],
)
async def test_lossless_formats_are_exact(format: str, options: dict[str, object]) -> None:
    file = picture_file(Image.fromarray(NOISE), format, **options)
    assert np.array_equal(await pixels(file), NOISE)


@pytest.mark.parametrize(
    ("format", "options"),
    [("JPEG", {}), ("JPEG", {"progressive": True}), ("WEBP", {}), ("AVIF", {})],
)
async def test_lossy_formats_are_as_their_library_gives_them(
    format: str, options: dict[str, object]
) -> None:
    smooth = Image.fromarray(noise(3, 5)).resize((40, 24), Image.Resampling.BICUBIC)
    file = picture_file(smooth, format, **options)
    found = await pixels(file)
    assert np.array_equal(found, np.asarray(Image.open(io.BytesIO(file)).convert("RGB")))
    assert np.abs(found.astype(int) - np.asarray(smooth).astype(int)).mean() < 8


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "LA", "RGBA"])
async def test_modes_become_rgb(mode: str) -> None:
    source = Image.fromarray(NOISE).convert(mode)
    format = {"CMYK": "TIFF", "YCbCr": "TIFF"}.get(mode, "PNG")
    file = picture_file(source, format)
    assert np.array_equal(await pixels(file), np.asarray(source.convert("RGB")))


async def test_cmyk_jpeg_has_the_colours_of_its_inks() -> None:
    red = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    assert np.abs((await pixels(picture_file(red, "JPEG"))).astype(int) - [255, 0, 0]).max() < 4


async def test_sixteen_bits_are_scaled() -> None:
    values = np.arange(0, 65536, 64, dtype=np.uint16).reshape(32, 32)
    found = await pixels(picture_file(Image.fromarray(values), "PNG"))
    assert np.array_equal(found, np.repeat((values >> 8)[..., None], 3, axis=2))
    assert np.array_equal(await pixels(picture_file(Image.fromarray(values), "TIFF")), found)
    colour = np.stack([values, values[::-1], values.T], axis=2)
    assert np.array_equal(await pixels(png(colour, bits=16)), colour >> 8)


async def test_what_is_transparent_is_white() -> None:
    alpha = noise(37, 53, 4)
    alpha[:5, :, 3] = 0
    found = await pixels(picture_file(Image.fromarray(alpha), "PNG"))
    assert (found[:5] == 255).all()
    share = alpha[..., 3:] / 255
    assert np.abs(found - (alpha[..., :3] * share + 255 * (1 - share))).max() <= 1
    palette = Image.fromarray(NOISE).convert("P", palette=Image.Palette.ADAPTIVE)
    file = picture_file(palette, "PNG", transparency=palette.getpixel((0, 0)))
    assert (await pixels(file))[0, 0].tolist() == [255, 255, 255]


async def test_of_several_pictures_the_first_is_taken() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    for format in ("GIF", "TIFF", "WEBP", "PNG", "AVIF"):
        file = picture_file(frames[0], format, save_all=True, append_images=frames[1:])
        assert (await pixels(file))[4, 4].tolist()[2] < 10, format


async def test_interlaced_png() -> None:
    file = png(noise(8, 8), interlaced=True)
    assert np.array_equal(await pixels(file), noise(8, 8))


@pytest.mark.parametrize("orientation", range(1, 9))
async def test_exif_orientation_is_applied(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = picture_file(Image.fromarray(NOISE), "PNG", exif=exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
    assert np.array_equal(await pixels(file), np.asarray(upright))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_large_pictures_are_sized_in_strips(
    orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Image.fromarray(noise(90, 60, 4)).resize((300, 450), Image.Resampling.BICUBIC)
    whole = sized(source, (85, 63), orientation)
    for name in ("_WHOLE_PIXELS", "_WHOLE_PIXELS_OF_ALPHA", "_STRIP_PIXELS"):
        monkeypatch.setattr(f"sensorium.encoders.decode_picture.{name}", 20_000)
    strips = sized(source, (85, 63), orientation)
    assert np.abs(strips.astype(int) - whole.astype(int)).max() <= 1


async def test_pictures_are_scaled_to_cells_by_lanczos() -> None:
    source = Image.fromarray(noise(30, 40)).resize((640, 480), Image.Resampling.BICUBIC)
    frame = await decode_image(picture_file(source, "PNG"), CELLS)
    wanted = source.resize((644, 476), Image.Resampling.LANCZOS)
    assert np.array_equal(frame.data, np.asarray(wanted)[None])


async def test_low_detail_takes_fewer_cells() -> None:
    file = picture_file(Image.new("RGB", (1120, 1120)), "PNG")
    assert (await decode_image(file, CELLS)).data.shape == (1, 1120, 1120, 3)
    assert (await decode_image(file, CELLS, detail="low")).data.shape == (1, 448, 448, 3)
    with pytest.raises(ValueError, match="low, high or auto"):
        await decode_image(file, CELLS, detail="best")


async def test_who_takes_no_pictures_is_told() -> None:
    with pytest.raises(ValueError, match="pictures takes no pictures"):
        await decode_image(picture_file(Image.new("L", (1, 1)), "PNG"), replace(STILLS, cell_px=0))


async def test_one_pixel_grows_to_a_cell() -> None:
    file = picture_file(Image.new("RGB", (1, 1), "blue"), "GIF")
    frame = await decode_image(file, CELLS)
    assert frame.data.shape == (1, 28, 28, 3)
    assert (frame.data == [0, 0, 255]).all()


def chunk(kind: bytes, content: bytes) -> bytes:
    crc = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + crc


def png(
    values: Pixels,
    *,
    size: tuple[int, int] | None = None,
    bits: int = 8,
    interlaced: bool = False,
    extra: bytes = b"",
) -> bytes:
    """Return RGB values as PNG; `size` (width, height) is what its header says."""
    height, width = values.shape[:2]
    wide = values.astype(f">u{bits // 8}")
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2)]
        passes += [(0, 1, 2, 2), (1, 0, 2, 1)]
    rows = [row for y, x, dy, dx in passes for row in wide[y::dy, x::dx]]
    packed = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = struct.pack(">IIBBBBB", *(size or (width, height)), bits, 2, 0, 0, interlaced)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


BOMB = zlib.compress(bytes(100_000_000), 9)
GOOD = picture_file(Image.fromarray(NOISE), "PNG")
GOOD_JPEG = picture_file(Image.fromarray(NOISE), "JPEG")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: b"", "empty_file"),
        (lambda: b"\0", "unsupported_format"),
        (lambda: noise(100, 100).tobytes(), "unsupported_format"),
        (lambda: GOOD[:20], "damaged"),
        (lambda: GOOD[: len(GOOD) // 2], "truncated"),
        (lambda: GOOD_JPEG[: len(GOOD_JPEG) // 2], "truncated"),
        (lambda: GOOD[:41] + bytes(200) + GOOD[241:], "damaged"),
        (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "unsupported_format"),
        (lambda: b"%PDF-1.4\n", "unsupported_format"),
        (lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>", "unsupported_format"),
        (lambda: picture_file(Image.fromarray(NOISE), "PPM"), "unsupported_format"),
        (lambda: picture_file(Image.new("F", (4, 4)), "TIFF"), "unsupported_format"),
        (lambda: png(noise(4, 4), size=(0, 4)), "unsupported_format"),
        (lambda: png(noise(4, 4), size=(8, 400)), "truncated"),
        (lambda: png(noise(4, 4), size=(30_000, 30_000)), "too_large"),
        (lambda: png(noise(4, 4), size=(40_000, 1)), "too_large"),
        (lambda: png(noise(4, 4), size=(6_000, 6_000)), "truncated"),
        (lambda: png(noise(4, 4), extra=chunk(b"zTXt", b"a\0\0" + BOMB)), "damaged"),
        (lambda: png(noise(4, 4), extra=chunk(b"iCCP", b"a\0\0" + BOMB)), "damaged"),
    ],
    ids=[
        "empty",
        "zero",
        "noise",
        "header-only",
        "half",
        "half-jpeg",
        "hole",
        "eps",
        "pdf",
        "svg",
        "ppm",
        "float",
        "0-px",
        "lying",
        "900-MP",
        "long",
        "lying-36-MP",
        "text-bomb",
        "icc-bomb",
    ],
)
async def test_what_is_no_picture_says_so(make: Callable[[], bytes], code: str) -> None:
    assert (await refused(make())).code == code


async def test_bomb_of_pixels_ends_where_its_header_says() -> None:
    rows = np.zeros((20_000, 1000, 3), np.uint8)
    file = png(rows, size=(1000, 4))
    assert (await pixels(file)).shape == (4, 1000, 3)


async def test_limits_are_named() -> None:
    file = picture_file(Image.new("L", (60, 40)), "PNG")
    error = await refused(file, DecodeLimits(max_pixels=1500))
    assert error.code == "too_large"
    assert "60 x 40 pixels" in str(error)
    assert "0.0015 million" in str(error)
    assert "a side may have 50" in str(await refused(file, DecodeLimits(max_side_px=50)))


async def test_bytes_after_the_picture_dont_matter() -> None:
    assert np.array_equal(await pixels(GOOD + b"trailing"), NOISE)


async def test_broken_exif_leaves_the_picture() -> None:
    file = picture_file(Image.fromarray(NOISE), "PNG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert np.array_equal(await pixels(file), NOISE)
