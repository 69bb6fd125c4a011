"""Mutated files over all containers: whatever the bytes, the caller gets frames or a MediaError.

    python bench/fuzz_media.py [--files 50000] [--seed 1] [--at-once 4]

Small files of every format are written first; each of the files tried is one of these with bytes
changed, cut, repeated, exchanged or spliced with another, by a generator seeded with --seed and the
file's number. They go through the decoder as a server uses it: each in a process of its own. A
child that crashes, or is killed at its limits, is as it should be. Counted as failures: any other
exception, a file that takes longer than its limits allow, a server of the decoders that ends,
memory of this process that grows. The exit status is 1 if there was any.
"""

import argparse
import asyncio
import logging
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from media_files import (  # noqa: E402  # the path is set above
    STILLS,
    VIDEO,
    grey_frames,
    noise,
    picture_file,
    sound_file,
    tone,
    video_file,
)
from PIL import Image  # noqa: E402  # the path is set above

from sensorium.encoders.decode_job import DecodeLimits, Job  # noqa: E402  # the path is set above
from sensorium.encoders.decode_process import Decoders  # noqa: E402  # the path is set above
from sensorium.encoders.media import MediaError  # noqa: E402  # the path is set above

LIMITS = DecodeLimits(max_cpu_s=10, max_wait_s=20, max_sound_s=600, max_video_s=600)
HANG_S = 60.0
MAX_GROWTH_MIB = 128
SECONDS = 0.2
_NUMBERS = (b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\1", b"\1\0\0\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed:
    """A good file, and what is asked of files made from it."""

    name: str
    kind: Literal["sound", "picture", "video"]
    data: bytes

    @property
    def job(self) -> Job:
        """What the decoder is to do with it."""
        match self.kind:
            case "sound":
                return Job(kind="sound", rate_hz=16_000, limits=LIMITS)
            case "picture":
                return Job(kind="picture", intake=replace(STILLS, cell_px=28), limits=LIMITS)
            case "video":
                return Job(kind="video", intake=VIDEO, rate_hz=16_000, limits=LIMITS)


def seeds() -> Iterator[Seed]:
    """Yield a small file of every format."""
    for container, codec in (
        ("wav", "pcm_s16le"),
        ("wav", "pcm_mulaw"),
        ("wav", "pcm_alaw"),
        ("wav", "pcm_f32le"),
        ("wav", "adpcm_ms"),
        ("flac", "flac"),
        ("mp3", "libmp3lame"),
        ("ogg", "libopus"),
        ("ogg", "vorbis"),
        ("webm", "libopus"),
        ("ipod", "aac"),
        ("mp4", "alac"),
    ):
        layout = "stereo" if codec == "vorbis" else "mono"
        data = sound_file(container, codec, 48_000, layout, tone(48_000, SECONDS))
        yield Seed(name=f"{container}/{codec}", kind="sound", data=data)
    colours = Image.fromarray(noise(3, 4, 4)).resize((40, 30), Image.Resampling.BICUBIC)
    for format, mode, options in (
        ("JPEG", "RGB", {}),
        ("JPEG", "L", {"progressive": True}),
        ("JPEG", "CMYK", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "P", {}),
        ("PNG", "1", {}),
        ("WEBP", "RGBA", {}),
        ("WEBP", "RGB", {"lossless": True}),
        ("TIFF", "RGB", {}),
        ("TIFF", "RGB", {"compression": "tiff_lzw"}),
        ("TIFF", "1", {"compression": "group4"}),
        ("TIFF", "RGB", {"compression": "jpeg"}),
        ("GIF", "P", {}),
        ("BMP", "RGB", {}),
        ("AVIF", "RGBA", {"speed": 10}),
    ):
        data = picture_file(colours.convert(mode), format, **options)
        yield Seed(name=f"{format.lower()}/{mode}", kind="picture", data=data)
    moving = [np.asarray(colours.convert("RGB").rotate(9 * turn)) for turn in range(8)]
    for container, codec in (
        ("mp4", "libx264"),
        ("mp4", "mpeg4"),
        ("webm", "libvpx"),
        ("webm", "libvpx-vp9"),
        ("matroska", "libx264"),
        ("matroska", "libx265"),
    ):
        sound_codec = "aac" if container == "mp4" else "libopus"
        options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
        shown = grey_frames(range(9)) if options else moving  # x265 crashes on 40 x 30 pixels
        sound = tone(48_000, SECONDS)
        data = video_file(
            container, codec, shown, sound=sound, sound_codec=sound_codec, options=options
        )
        yield Seed(name=f"{container}/{codec}", kind="video", data=data)


def mutated(number: int, seed: int, originals: list[Seed]) -> tuple[Seed, bytes]:
    """Return the original of that number's file, and the file."""
    chance = random.Random(f"{seed}/{number}")
    original = originals[number % len(originals)]
    data = bytearray(original.data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16, 64))):
        # Headers are where sizes are: half of all changes are among the first bytes.
        end = len(data) if chance.random() < 0.5 else min(len(data), 256)
        place = chance.randrange(end) if end else 0
        length = min(chance.choice((1, 2, 4, 16, 100)), max(0, len(data) - place))
        match chance.randrange(9):
            case 0 | 1:
                data[place : place + 1] = bytes([chance.randrange(256)])
            case 2:
                data[place : place + 1] = bytes([(data or b"\0")[place] ^ 1 << chance.randrange(8)])
            case 3:
                data[place : place + 4] = chance.choice(_NUMBERS)
            case 4:
                del data[place : place + length]
            case 5:
                data[place:place] = data[place : place + length] * chance.choice((1, 2, 50))
            case 6:
                data[place : place + length] = chance.randbytes(length)
            case 7:
                other = chance.choice(originals).data
                start = chance.randrange(len(other))
                data[place : place + length] = other[start : start + length]
            case 8 if chance.random() < 0.2:
                del data[place:]
    return original, bytes(data)


class Trial:
    """Decodes one file after the other and counts what became of them."""

    def __init__(self, decoders: Decoders) -> None:
        self.ends: Counter[str] = Counter()
        self.failures: list[str] = []
        self.slowest_s = 0.0
        self._decoders = decoders

    async def decode(self, label: str, job: Job, data: bytes) -> None:
        """Decode one file; whatever else than frames or a MediaError comes of it is a failure."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(HANG_S), aclosing(self._decoders.frames(job, data)) as found:
                async for _ in found:
                    pass
            self.ends["decoded"] += 1
        except MediaError as error:
            crashed = "its decoder ended" in str(error)
            self.ends["crashed" if crashed else error.code] += 1
            if error.code == "decoder_unavailable":
                self.failures.append(f"{label}: {error}")
        except TimeoutError:
            self.failures.append(f"{label}: still at work after {HANG_S:g} s")
        except Exception as error:  # what this script is for
            self.failures.append(f"{label}: {error!r}")
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)


async def fuzz(num_files: int, seed: int, at_once: int) -> Trial:
    """Try files 0 to `num_files` of a seed, some at once."""
    originals = list(seeds())
    decoders = Decoders(max_working=at_once, max_live=at_once)
    trial = Trial(decoders)
    for original in originals:
        await trial.decode(original.name, original.job, original.data)
    if trial.ends["decoded"] != len(originals):
        trial.failures.append(f"of {len(originals)} good files: {dict(trial.ends)}")
    trial.ends.clear()
    numbers = iter(range(num_files))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def work() -> None:
        for number in numbers:
            original, data = mutated(number, seed, originals)
            await trial.decode(f"file {number} ({original.name})", original.job, data)
            if number and number % 5000 == 0:
                print(f"{number} files: {dict(trial.ends)}", flush=True)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(work())
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    if growth > MAX_GROWTH_MIB:
        trial.failures.append(f"this process grew by {growth:.0f} MiB")
    decoders.close()
    return trial


def main() -> int:
    """Run it, print what became of the files, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=4)
    wanted = parser.parse_args()
    logging.basicConfig(stream=sys.stderr)
    started = time.monotonic()
    trial = asyncio.run(fuzz(wanted.files, wanted.seed, wanted.at_once))
    took_s = time.monotonic() - started
    for end, count in trial.ends.most_common():
        print(f"{count:8} {end}")
    print(f"{sum(trial.ends.values())} files in {took_s:.0f} s, slowest {trial.slowest_s:.1f} s")
    for failure in trial.failures:
        print(f"FAILED {failure}")
    return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main())
