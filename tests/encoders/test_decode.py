"""The decoder as its callers know it: streams that can be left, and errors of the file."""

import asyncio
from contextlib import aclosing

import numpy as np
from media_files import STILLS, noise, picture_file, wav
from PIL import Image

from sensorium.encoders.decode import (
    close_decoders,
    decode,
    decode_image,
    decode_stream,
    warm_decoders,
)

RATE_HZ = 16_000


async def test_child_ends_with_its_reader() -> None:
    stream = decode_stream(wav(bytes(2 * 600 * RATE_HZ)), RATE_HZ)
    async with aclosing(stream) as chunks:
        assert len(await anext(chunks)) > 0
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()


async def test_closed_decoders_start_again() -> None:
    await warm_decoders()
    for _ in range(2):
        assert len(await decode(wav(bytes(320)), RATE_HZ)) == 160
        close_decoders()


def test_decoders_serve_one_event_loop_after_another() -> None:
    file = picture_file(Image.fromarray(noise(4, 4)), "PNG")
    for _ in range(2):
        frame = asyncio.run(decode_image(file, STILLS))
        assert np.array_equal(frame.data[0], noise(4, 4))
