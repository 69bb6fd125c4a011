"""Does a PNG hold the pixels its header promises? Pillow leaves what is missing black."""

import io
import struct
import zlib

from sensorium.encoders.media import MediaError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Colour type → values per pixel."""
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2))
"""x, y, step in x and in y of each pass of an interlaced picture but the last."""
_LAST_PASS = (0, 1, 1, 2)
_BLOCK_BYTES = 1 << 16


def check(file: io.BufferedReader) -> None:
    """Raise MediaError if a PNG's pixels end too early or are no deflate stream; rewinds `file`.

    Inflates block by block and stops at the size that the header promises, so a deflate bomb costs
    nothing. What isn't a PNG is left to the decoder to judge.
    """
    file.seek(0)
    head = file.read(29)
    if head[:8] == SIGNATURE and len(head) == 29:
        width, height, bits, colour, _, _, interlaced = struct.unpack(">IIBBBBB", head[16:29])
        missing = _num_bytes(width, height, bits * _CHANNELS.get(colour, 0), bool(interlaced))
        try:
            missing -= _inflated_bytes(file, missing)
        except zlib.error:
            message = "The png is damaged: its pixels can't be inflated."
            raise MediaError("damaged", message) from None
        if missing > 0:
            message = f"The png has fewer pixels than the {width} x {height} of its header."
            raise MediaError("truncated", message)
    file.seek(0)


def _num_bytes(width: int, height: int, bits: int, interlaced: bool) -> int:
    """Return the size of all rows with their filter bytes, before they were deflated."""
    passes = (*_ADAM7, _LAST_PASS) if interlaced else ((0, 0, 1, 1),)
    total = 0
    for x, y, step_x, step_y in passes:
        columns = (width - x + step_x - 1) // step_x
        rows = (height - y + step_y - 1) // step_y
        if columns > 0 and rows > 0:
            total += rows * (1 + (columns * bits + 7) // 8)
    return total


def _inflated_bytes(file: io.BufferedReader, wanted: int) -> int:
    """Return how many bytes the image data has, or `wanted` if it has that many."""
    inflate = zlib.decompressobj()
    file.seek(len(SIGNATURE))
    num_bytes = 0
    while len(head := file.read(8)) == 8:
        size, kind = struct.unpack(">I4s", head)
        if kind != b"IDAT":
            file.seek(size + 4, io.SEEK_CUR)
            continue
        while size > 0 and (block := file.read(min(size, _BLOCK_BYTES))):
            size -= len(block)
            while block:
                num_bytes += len(inflate.decompress(block, _BLOCK_BYTES))
                block = inflate.unconsumed_tail
                if num_bytes >= wanted:
                    return wanted
                if inflate.eof:
                    return num_bytes
        file.seek(4, io.SEEK_CUR)
    return num_bytes
