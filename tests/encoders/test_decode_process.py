"""Decoder processes: bounded, confined, killed when nobody wants them, and never believed."""

import asyncio
import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest
from media_files import STILLS, VIDEO, noise, picture_file, wav
from PIL import Image

from sensorium.encoders.decode_job import DecodeLimits, Job, RawSound
from sensorium.encoders.decode_process import Decoders, End, _Child
from sensorium.encoders.media import MediaError

PICTURE = Job(kind="picture", intake=STILLS)
SOUND = Job(kind="sound", rate_hz=16_000)
ENDLESS = wav(bytes(2 * 16_000 * 3600))
SMALL = picture_file(Image.fromarray(noise(4, 4)), "PNG")


@pytest.fixture
async def decoders() -> AsyncIterator[Decoders]:
    decoders = Decoders()
    yield decoders
    decoders.close()


async def drain(decoders: Decoders, job: Job, data: bytes) -> int:
    async with aclosing(decoders.frames(job, data)) as frames:
        return len([frame async for frame in frames])


async def refused(decoders: Decoders, job: Job, data: bytes) -> MediaError:
    with pytest.raises(MediaError) as raised:
        await drain(decoders, job, data)
    return raised.value


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def server_of(decoders: Decoders) -> int:
    assert decoders._server is not None
    return decoders._server.pid


async def until_gone(*pids: int) -> None:
    """Wait for the kernel; the suite's own limit ends it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            gone = os.pidfd_open(pid)
            await asyncio.to_thread(select.select, [gone], [], [])
            os.close(gone)


def test_a_job_is_the_same_after_its_journey() -> None:
    raw = RawSound(format="pcm16", rate_hz=8000, num_channels=2)
    job = Job(kind="video", intake=VIDEO, rate_hz=24_000, raw=raw, detail="low")
    assert Job.from_json(job.to_json()) == job


async def test_child_ends_with_its_reader(decoders: Decoders) -> None:
    async with aclosing(decoders.frames(SOUND, ENDLESS)) as frames:
        await anext(frames)
        (child,) = children_of(server_of(decoders))
    await until_gone(child)
    assert await drain(decoders, PICTURE, SMALL) == 1


async def test_each_file_has_a_process_of_its_own(decoders: Decoders) -> None:
    async with aclosing(decoders.frames(SOUND, ENDLESS)) as one:
        await anext(one)
        async with aclosing(decoders.frames(SOUND, ENDLESS)) as other:
            await anext(other)
            assert len(children_of(server_of(decoders))) == 2


async def test_child_has_nothing_but_its_file(decoders: Decoders) -> None:
    async with aclosing(decoders.frames(SOUND, ENDLESS)) as frames:
        await anext(frames)
        (child,) = children_of(server_of(decoders))
        place = Path(f"/proc/{child}")
        descriptors = {int(path.name): os.readlink(path) for path in (place / "fd").iterdir()}
        limits = (place / "limits").read_text()
        variables = (place / "environ").read_bytes().split(b"\0")
    assert sorted(descriptors) == [0, 1, 2]
    assert descriptors[0].startswith("/memfd:media")
    assert descriptors[1].startswith("socket:")
    assert descriptors[2] == "/dev/null"
    assert {name.partition(b"=")[0] for name in variables} <= {
        b"",
        b"PYTHONPATH",
        b"OPENBLAS_NUM_THREADS",
        b"LC_CTYPE",
    }
    for line in (
        "cpu time +120 +121",
        "file size +0 +0",
        "open files +3 +3",
        "core file size +0 +0",
    ):
        assert re.search(f"Max {line}", limits), line


async def test_stopped_child_is_killed(decoders: Decoders) -> None:
    limits = DecodeLimits(max_wait_s=0.2)
    job = Job(kind="sound", rate_hz=16_000, limits=limits)

    async def read() -> None:
        async with aclosing(decoders.frames(job, ENDLESS)) as frames:
            await anext(frames)
            (child,) = children_of(server_of(decoders))
            os.kill(child, signal.SIGSTOP)
            pids.append(child)
            async for _ in frames:
                pass

    await decoders.warm()
    await drain(decoders, PICTURE, SMALL)
    pids: list[int] = []
    with pytest.raises(MediaError, match=r"more than 0\.2 s") as raised:
        await read()
    assert raised.value.code == "too_costly"
    await until_gone(*pids)


async def test_processor_time_is_bounded(decoders: Decoders) -> None:
    limits = DecodeLimits(max_cpu_s=1, max_sound_s=1e9)
    raw = RawSound(format="g711_ulaw", rate_hz=2_000)
    job = Job(kind="sound", rate_hz=44_100, limits=limits, raw=raw)
    error = await refused(decoders, job, bytes(40_000_000))
    assert error.code == "too_costly"
    assert "1 s" in str(error)
    assert decoders.last_end is not None
    assert decoders.last_end.exit_code == -signal.SIGXCPU


async def test_crashed_child_is_an_error_of_the_file(decoders: Decoders) -> None:
    async def read() -> None:
        async with aclosing(decoders.frames(SOUND, ENDLESS)) as frames:
            await anext(frames)
            for child in children_of(server_of(decoders)):
                os.kill(child, signal.SIGSEGV)
            async for _ in frames:
                pass

    with pytest.raises(MediaError) as raised:
        await read()
    assert raised.value.code == "damaged"
    assert decoders.last_end is not None
    assert decoders.last_end.exit_code == -signal.SIGSEGV


async def test_server_that_dies_is_replaced(decoders: Decoders) -> None:
    await drain(decoders, PICTURE, SMALL)
    first = server_of(decoders)
    pids: list[int] = []

    async def read() -> None:
        async with aclosing(decoders.frames(SOUND, ENDLESS)) as frames:
            await anext(frames)
            pids.extend(children_of(first))
            os.kill(first, signal.SIGKILL)
            async for _ in frames:
                pass

    with pytest.raises(MediaError) as raised:
        await read()
    assert raised.value.code == "decoder_unavailable"
    assert decoders._server is not None
    decoders._server.wait()
    await until_gone(*pids)
    assert await drain(decoders, PICTURE, SMALL) == 1


def test_no_process_outlives_its_program() -> None:
    program = f"""
import asyncio, os, signal, sys
sys.path[:0] = {[str(Path(__file__).parent.parent)]!r}
from test_decode_process import *

async def main():
    decoders = Decoders()
    async with aclosing(decoders.frames(SOUND, ENDLESS)) as frames:
        await anext(frames)
        server = server_of(decoders)
        print(server, *children_of(server), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    paths = [str(Path(__file__).parent), *sys.path]
    result = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )
    assert result.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in result.stdout.split()]
    assert len(pids) == 2
    asyncio.run(until_gone(*pids))


async def test_only_so_many_decode_at_once() -> None:
    decoders = Decoders(max_working=1, max_live=2)
    try:
        async with (
            aclosing(decoders.frames(SOUND, ENDLESS)) as one,
            aclosing(decoders.frames(SOUND, ENDLESS)) as two,
        ):
            await anext(one)
            await anext(two)  # one's reader is busy elsewhere, so it isn't counted
            third = asyncio.ensure_future(drain(decoders, PICTURE, SMALL))
            for _ in range(20):
                await anext(one)
            assert not third.done()
            assert len(children_of(server_of(decoders))) == 2
        assert await third == 1
    finally:
        decoders.close()


async def test_close_ends_everything(decoders: Decoders) -> None:
    stream = decoders.frames(SOUND, ENDLESS)
    await anext(stream)
    server = server_of(decoders)
    child = children_of(server)
    decoders.close()
    await until_gone(server, *child)
    await stream.aclose()
    assert await drain(decoders, PICTURE, SMALL) == 1


def head(**other: object) -> bytes:
    """Return the first line of a frame of one sample, with some other values."""
    good = {"modality": "audio", "pts": 0, "rate_hz": 1, "dtype": "float32", "shape": [1]}
    return json.dumps(good | other).encode() + b"\n"


@pytest.mark.parametrize(
    "lie",
    [
        b"",
        b"\n",
        b"[]\n",
        b"7\n",
        b"x" * 100_000,
        b'{"modality": "audio"}\n',
        b'{"code": 1}\n',
        head(shape=[9_999_999_999_999]),
        head(rate_hz=0) + bytes(4),
        head(shape=[2]) + bytes(4),
        head(dtype="O") + bytes(8),
        head(modality="smell") + bytes(4),
        head(modality="image", dtype="uint8", shape=[]) + bytes(1),
        head(pts="a") + bytes(4),
        head(shape=[-1, -1]) + bytes(4),
    ],
)
async def test_child_that_lies_is_an_error_of_the_file(lie: bytes) -> None:
    frames, ends = asyncio.StreamReader(limit=1 << 12), asyncio.StreamReader()
    frames.feed_data(lie)
    frames.feed_eof()
    ends.feed_data(b'{"exit_code": 0, "cpu_s": 0.0, "max_rss_kib": 1}\n')
    child = _Child(SOUND, frames, ends)
    with pytest.raises(MediaError) as raised:
        await child.next()
    assert raised.value.code == "damaged"
    assert child.end == End(exit_code=0, cpu_s=0.0, max_rss_kib=1)


class TightJob(Job):
    """A job whose reader takes less than its child believes."""

    @property
    def max_output_bytes(self) -> int:
        return 300_000


async def test_what_a_child_sends_in_all_is_counted_by_its_reader(decoders: Decoders) -> None:
    job = TightJob(kind="sound", rate_hz=16_000)
    assert await drain(decoders, job, wav(bytes(2 * 16_000 * 4))) > 0
    error = await refused(decoders, job, wav(bytes(2 * 16_000 * 6)))
    assert (error.code, str(error)) == ("too_large", "The file gives more than 300000 bytes.")


async def test_child_is_read_as_it_speaks() -> None:
    frames, ends = asyncio.StreamReader(), asyncio.StreamReader()
    frames.feed_data(head() + np.float32(0.5).tobytes() + b"{}\n")
    ends.feed_data(b'{"exit_code": 0, "cpu_s": 0.0, "max_rss_kib": 1}\n')
    child = _Child(SOUND, frames, ends)
    found = await child.next()
    assert found is not None
    assert found[1].data.tolist() == [0.5]
    assert await child.next() is None
