"""Files of sound, pictures and video to frames: any common format, from anybody.

Decoders of media are large and old C code, and the files come from strangers. Each file is decoded
in a process of its own (decode_child.py), forked from a warm one (decode_server.py), under limits
of memory and time; a crash there is a `MediaError` here (the codes are in decode_job.py). Nothing
of PyAV, FFmpeg or Pillow is loaded into this process.
"""

import atexit
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np

from sensorium.encoders.decode_job import FORMATS, DecodeLimits, Job, RawSound
from sensorium.encoders.decode_process import Decoders
from sensorium.encoders.media import Intake, MediaFrame, Samples
from sensorium.encoders.sizing import cells_for

__all__ = [
    "FORMATS",
    "DecodeLimits",
    "RawSound",
    "close_decoders",
    "decode",
    "decode_image",
    "decode_stream",
    "decode_video",
    "warm_decoders",
]

_decoders = Decoders()
atexit.register(_decoders.close)


async def warm_decoders() -> None:
    """Start the process that decoders are forked from; without it the first file waits for it."""
    await _decoders.warm()


def close_decoders() -> None:
    """End all decoders. For the end of the program; a later file starts them again."""
    _decoders.close()


async def decode_stream(
    data: bytes,
    rate_hz: int,
    limits: DecodeLimits | None = None,
    *,
    raw: RawSound | None = None,
) -> AsyncGenerator[Samples, None]:
    """Yield the sound of a file as mono float32 chunks at `rate_hz`, in order.

    `raw` says what `data` is if it is no file but bare samples. Raises MediaError; chunks before
    it are good. Close the generator to stop.
    """
    job = Job(kind="sound", rate_hz=rate_hz, limits=limits or DecodeLimits(), raw=raw)
    async with aclosing(_decoders.frames(job, data)) as frames:
        async for _, frame in frames:
            yield frame.data


async def decode(
    data: bytes,
    rate_hz: int,
    limits: DecodeLimits | None = None,
    *,
    raw: RawSound | None = None,
) -> Samples:
    """Return all sound of a file, mono float32 `[n]` at `rate_hz`; raises MediaError."""
    async with aclosing(decode_stream(data, rate_hz, limits, raw=raw)) as chunks:
        parts = [samples async for samples in chunks]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


async def decode_image(
    data: bytes, intake: Intake, *, detail: str = "auto", limits: DecodeLimits | None = None
) -> MediaFrame:
    """Return a picture upright, in RGB on white, sized as `intake` takes it; raises MediaError.

    `detail` is low, high or auto (encoders/sizing.py); ValueError for another word.
    """
    _check(intake)
    cells_for(detail, intake.max_cells)
    job = Job(kind="picture", intake=intake, detail=detail, limits=limits or DecodeLimits())
    async with aclosing(_decoders.frames(job, data)) as frames:
        found = [frame async for _, frame in frames]
    return found[0]


async def decode_video(
    data: bytes,
    intake: Intake,
    *,
    sound_rate_hz: int | None,
    limits: DecodeLimits | None = None,
) -> AsyncGenerator[tuple[str, MediaFrame], None]:
    """Yield ("video", frame) and ("audio", frame) of a file in the order of media time.

    Frames of video are chosen and sized as `intake` takes them, upright, all of one size; sound is
    mono at `sound_rate_hz`, without gaps, and left out for None. Both count from the file's first
    frame or sound. Raises MediaError; frames before it are good. Close the generator to stop.
    """
    _check(intake)
    limits = limits or DecodeLimits()
    job = Job(kind="video", intake=intake, rate_hz=sound_rate_hz, limits=limits)
    async with aclosing(_decoders.frames(job, data)) as frames:
        async for modality, frame in frames:
            yield modality, frame


def _check(intake: Intake) -> None:
    if intake.dtype != "uint8" or min(intake.cell_px, intake.max_cells) < 1:
        raise ValueError(f"{intake.encoder} takes no pictures: {intake}")
