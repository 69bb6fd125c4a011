"""The process that decodes one file: confined by the kernel, then frames and an end on a socket.

Forked by decode_server.py, which has run `prepare`. It can open nothing: no descriptor is left to
have, so what it can read is the one file on its stdin. Messages to the reader are a line of JSON,
for a frame followed by its values: {modality, pts, rate_hz, dtype, shape}; {code, message} is a
MediaError; {} the good end. Anything else, or none, is a crash.
"""

import ctypes
import errno
import importlib
import io
import json
import os
import pkgutil
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import av

from sensorium.encoders import decode_picture, decode_sound, decode_video
from sensorium.encoders.decode_job import Job
from sensorium.encoders.media import MediaError, MediaFrame

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_NUM_DESCRIPTORS = 3
_SHARED_BYTES = 64 << 20
"""Address space beyond `max_memory_mib`: what is mapped but not a process's own."""


class Source(io.RawIOBase):
    """A file by its descriptor, with a position of its own and no name to open it by again."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._num_bytes = os.fstat(descriptor).st_size
        self._position = 0

    def readable(self) -> bool:
        """Tell io that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell io that it can be moved in."""
        return True

    def readinto(self, buffer: Any) -> int:  # what has a buffer gets its type in Python 3.12
        """Fill `buffer` from the position on; returns how many bytes there were."""
        count = os.preadv(self._descriptor, [buffer], self._position)
        self._position += count
        return count

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move; past the end there is nothing to read. Raises OSError before the start."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._num_bytes}[whence]
        if not 0 <= start + offset < 1 << 62:
            raise OSError(errno.EINVAL, "no such place in the file")
        self._position = start + offset
        return self._position


def prepare() -> None:
    """Load everything that a child will need: it can't open a file to import."""
    av.logging.set_level(None)
    for module in pkgutil.walk_packages(av.__path__, "av."):  # PyAV imports some on use
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    decode_picture.prepare()


def run(job_text: str, file: int, output: int) -> NoReturn:
    """Decode the file of descriptor `file` to the socket `output` and end the process."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _die_with(os.getppid())
        job = Job.from_json(job_text)
        _keep_only(file, output)
        _confine(job.limits.max_cpu_s, job.limits.max_memory_mib << 20)
        _write(job)
        status = 0
    finally:
        os._exit(status)  # nothing of the server's is to be flushed or closed here


def decode_file(job: Job, descriptor: int) -> Iterator[tuple[str, MediaFrame]]:
    """Yield the job's frames with their modality; raises MediaError."""

    def opened() -> io.BufferedReader:
        return io.BufferedReader(Source(descriptor), 1 << 16)

    match job.kind:
        case "sound":
            yield from (("audio", frame) for frame in decode_sound.frames(opened(), job))
        case "picture":
            yield "image", decode_picture.frame(opened(), job)
        case "video":
            yield from decode_video.frames(opened, job)


def _write(job: Job) -> None:
    with open(1, "wb", closefd=False) as output:
        try:
            for modality, frame in decode_file(job, 0):
                _send(output, modality, frame)
            end: dict[str, str] = {}
        except MediaError as error:
            end = {"code": error.code, "message": str(error)}
        except MemoryError:
            end = _too_costly(job.limits.max_memory_mib)
        output.write(json.dumps(end).encode() + b"\n")


def _send(output: io.BufferedWriter, modality: str, frame: MediaFrame) -> None:
    head = {
        "modality": modality,
        "pts": frame.pts,
        "rate_hz": frame.rate_hz,
        "dtype": str(frame.data.dtype),
        "shape": frame.data.shape,
    }
    output.write(json.dumps(head).encode() + b"\n")
    output.write(frame.data.data.cast("B"))
    output.flush()


def _too_costly(max_memory_mib: int) -> dict[str, str]:
    message = f"Decoding the file would take more than {max_memory_mib} MiB of memory."
    return {"code": "too_costly", "message": message}


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, and give no way to more rights."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit()


def _keep_only(file: int, output: int) -> None:
    """Leave the file as stdin, the output as stdout, and nothing else open but /dev/null."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for place, descriptor in enumerate((file, output, nothing)):
        os.dup2(descriptor, place)
    os.closerange(_NUM_DESCRIPTORS, 1 << 12)


def _confine(max_cpu_s: int, max_memory_bytes: int) -> None:
    """Give up the right to more than one small job needs (setrlimit(2))."""
    with open("/proc/self/statm") as file:
        pages = [int(field) for field in file.read().split()]
    size, data = (pages[index] * resource.getpagesize() for index in (0, 5))
    resource.setrlimit(resource.RLIMIT_CPU, (max_cpu_s, max_cpu_s + 1))  # SIGXCPU, then SIGKILL
    for what, value in (
        (resource.RLIMIT_DATA, data + max_memory_bytes),
        (resource.RLIMIT_AS, size + max_memory_bytes + _SHARED_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, _NUM_DESCRIPTORS),
    ):
        resource.setrlimit(what, (value, value))
