"""The process that decodes one file: bytes on stdin, mono float32 samples on stdout.

Started by decode.py with its limits as JSON; stdin is a file, so that decoders can seek. It ends
with status 0, or with 3 and a JSON object {code, message} on stderr; any other end is a crash. It
reads nothing but stdin: FFmpeg's other protocols, and formats that name other files (playlists),
are switched off.
"""

import json
import resource
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import av
import numpy as np

from sensorium.encoders.decode import FORMATS
from sensorium.encoders.media import MediaError, Samples

MEDIA_ERROR_STATUS = 3
_DEMUXERS = "wav,w64,aiff,flac,mp3,ogg,aac,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm"
_MAX_BAD_PACKETS = 100
"""Damaged packets that are skipped before the whole file counts as damaged."""


def main() -> int:
    """Decode stdin to stdout under the limits in `argv[1]`."""
    limits = json.loads(sys.argv[1])
    _confine(limits["max_cpu_s"], limits["max_memory_mib"] << 20)
    try:
        for samples in decode_file(sys.stdin.buffer, limits["rate_hz"], limits["max_sound_s"]):
            sys.stdout.buffer.write(samples.tobytes())
        sys.stdout.buffer.flush()
    except MediaError as error:
        json.dump({"code": error.code, "message": str(error)}, sys.stderr)
        return MEDIA_ERROR_STATUS
    except BrokenPipeError:
        return 1
    return 0


def decode_file(file: BinaryIO, rate_hz: int, max_sound_s: float) -> Iterator[Samples]:
    """Yield the first audio stream of `file`, mixed to mono at `rate_hz`; raises MediaError."""
    options = {"format_whitelist": _DEMUXERS, "protocol_whitelist": ""}
    try:
        container: Any = av.open(file, mode="r", options=options, metadata_errors="ignore")
    except av.error.FFmpegError:
        raise MediaError(
            "unsupported_format",
            f"The file can't be decoded: it is damaged, or none of {FORMATS}.",
        ) from None
    with container:
        if not container.streams.audio:
            raise MediaError("no_sound", "The file has no sound in it.")
        num_samples = 0
        for samples in _resampled(container, rate_hz):
            num_samples += len(samples)
            if num_samples > max_sound_s * rate_hz:
                limit = f"{max_sound_s / 60:g} minutes"
                raise MediaError("too_long", f"The file has more than {limit} of sound.")
            yield samples
        if num_samples == 0:
            raise MediaError("no_sound", "There is no sound in the file that can be decoded.")


def _resampled(container: Any, rate_hz: int) -> Iterator[Samples]:
    resampler = av.AudioResampler(format="flt", layout="mono", rate=rate_hz)
    try:
        for frame in _frames(container):
            for part in resampler.resample(frame):
                yield _samples(part)
        for part in resampler.resample(None):
            yield _samples(part)
    except (av.error.FFmpegError, ValueError):
        raise MediaError("unsupported_format", "The file's sound can't be decoded.") from None


def _frames(container: Any) -> Iterator[Any]:
    """Yield decoded frames; what is damaged or cut off is skipped, within reason."""
    stream = container.streams.audio[0]
    stream.thread_type = "NONE"
    num_bad = 0
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.error.FFmpegError:
            return  # the file ends in the middle of a packet
        if packet is None:
            return
        try:
            yield from packet.decode()
        except av.error.InvalidDataError:
            num_bad += 1
            if num_bad > _MAX_BAD_PACKETS:
                raise


def _samples(frame: Any) -> Samples:
    samples: Samples = frame.to_ndarray()[0]
    # A float file may hold anything; what isn't a number would poison every later filter.
    return np.nan_to_num(samples, nan=0.0, posinf=1.0, neginf=-1.0).clip(-1.0, 1.0)


def _confine(max_cpu_s: int, max_memory_bytes: int) -> None:
    """Give up the right to more than one small job needs (setrlimit(2))."""
    av.logging.set_level(None)
    for what, value in (
        (resource.RLIMIT_CPU, max_cpu_s),
        (resource.RLIMIT_AS, max_memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 16),
    ):
        resource.setrlimit(what, (value, value))


if __name__ == "__main__":
    sys.exit(main())
