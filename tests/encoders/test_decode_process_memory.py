"""What the worst small files may cost: 256 MiB more memory than before, however they end."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from media_files import STILLS, VIDEO, picture_file, sound_file, video_file
from PIL import Image

from sensorium.encoders.decode_job import Job
from sensorium.encoders.decode_process import Decoders
from sensorium.encoders.media import MediaError

MAX_MIB = 256
PICTURE = Job(kind="picture", intake=replace(STILLS, cell_px=28, max_cells=4096))
SOUND = Job(kind="sound", rate_hz=16_000)
FILM = Job(kind="video", intake=replace(VIDEO, cell_px=28, max_cells=256), rate_hz=16_000)


@pytest.fixture
async def decoders() -> AsyncIterator[Decoders]:
    decoders = Decoders()
    yield decoders
    decoders.close()


async def outcome(decoders: Decoders, job: Job, data: bytes) -> tuple[str, int]:
    """Decode a file; returns "decoded" or the code of its error, and the child's peak in KiB."""
    end = "decoded"
    try:
        async for _ in decoders.frames(job, data):
            pass
    except MediaError as error:
        end = error.code
    assert decoders.last_end is not None
    return end, decoders.last_end.max_rss_kib


def plain(mode: str, width: int, height: int, format: str, **options: Any) -> bytes:
    return picture_file(Image.new(mode, (width, height)), format, **options)


def film_of_4k() -> bytes:
    """Return a film with sixteen reference frames, each of the largest size that is taken."""
    shade = np.zeros((2304, 4096, 3), np.uint8)
    options = {
        "preset": "ultrafast",
        "refs": "16",
        "tune": "zerolatency",
        "x264-params": "threads=1",
    }
    return video_file("mp4", "libx264", [shade] * 12, options=options)


def with_samples(count: int) -> bytes:
    """Return an mp4 whose index lists that many samples of one size."""
    file = sound_file("mp4", "aac")
    place = file.index(b"stsz") + 8
    return file[:place] + (1).to_bytes(4, "big") + count.to_bytes(4, "big") + file[place + 8 :]


def many_channels() -> bytes:
    """Return a WAV of noise in 512 channels at a rate that must be raised twelvefold."""
    file = bytearray(sound_file("wav", "pcm_u8", 8000))
    place = file.index(b"fmt ") + 8
    file[place + 2 : place + 4] = (512).to_bytes(2, "little")
    file[place + 4 : place + 8] = (2000).to_bytes(4, "little")
    return bytes(file) + bytes(4_000_000)


@pytest.mark.parametrize(
    ("job", "make", "ends"),
    [
        (PICTURE, lambda: plain("RGBA", 8000, 5000, "PNG", compress_level=1), ("decoded",)),
        (PICTURE, lambda: plain("RGB", 4400, 4000, "JPEG", progressive=True), ("decoded",)),
        (PICTURE, lambda: plain("RGB", 5500, 4000, "TIFF", compression="tiff_lzw"), ("decoded",)),
        (PICTURE, lambda: plain("RGBA", 2500, 4000, "WEBP", method=0), ("decoded",)),
        (PICTURE, lambda: plain("RGBA", 4000, 4000, "WEBP", method=0), ("too_large",)),
        (FILM, film_of_4k, ("decoded", "too_costly", "damaged")),
        (SOUND, lambda: with_samples(0x0FFFFFFF), ("no_sound", "too_large", "damaged")),
        (SOUND, many_channels, ("decoded",)),
    ],
    ids=[
        "40-MP-png",
        "18-MP-progressive",
        "22-MP-tiff",
        "10-MP-webp",
        "16-MP-webp",
        "4k-film",
        "mp4-index",
        "512-channels",
    ],
)
async def test_memory_of_the_worst_files_is_bounded(
    decoders: Decoders, job: Job, make: Callable[[], bytes], ends: tuple[str, ...]
) -> None:
    _, before_kib = await outcome(decoders, PICTURE, plain("L", 1, 1, "PNG"))
    file = make()
    end, peak_kib = await outcome(decoders, job, file)
    assert end in ends
    assert (peak_kib - before_kib) / 1024 + 2 * len(file) / 2**20 < MAX_MIB
