"""The process that forks a decoder for every file: `python -m sensorium.encoders.decode_server FD`.

It has the media libraries loaded, so that a file costs a fork (3 ms) and no process start (250 ms).
It never reads a file itself: each goes to a fresh child (decode_child.py), which ends with it.

On the socket FD come jobs, one packet each: JSON, with three descriptors: the file, where frames go
and the lease. A child is killed when the other end of its lease is closed; when it ends, however,
that is written to the lease as JSON. When FD is closed, all of this ends.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from types import FrameType

from sensorium.encoders import decode_child

MAX_JOB_BYTES = 1 << 14
_NUM_DESCRIPTORS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    pid: int
    lease: socket.socket


class ForkServer:
    """Starts, watches and buries the children of one control socket; one thread, never blocking."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, _ignore)  # wakes the selector through the pipe
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the control socket is closed."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._start():
                        return
                elif key.fileobj == self._woken:
                    os.read(self._woken, 1 << 12)
                    self._bury()
                elif key.data.pid in self._children:  # the lease has no messages, only an end
                    self._selector.unregister(key.fileobj)
                    os.kill(key.data.pid, signal.SIGKILL)

    def _start(self) -> bool:
        text, descriptors, _, _ = socket.recv_fds(self._control, MAX_JOB_BYTES, _NUM_DESCRIPTORS)
        if not text:
            return False
        file, output, lease_fd = descriptors
        lease = socket.socket(fileno=lease_fd)
        try:
            pid = os.fork()
        except OSError:  # no process to be had: the lease ends without a word
            lease.close()
        else:
            if pid == 0:
                decode_child.run(text.decode(), file, output)
            child = _Child(pid=pid, lease=lease)
            self._children[pid] = child
            self._selector.register(lease, selectors.EVENT_READ, child)
        os.close(file)
        os.close(output)
        return True

    def _bury(self) -> None:
        while self._children:
            pid, status, used = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self._children.pop(pid)
            end = {
                "exit_code": os.waitstatus_to_exitcode(status),
                "cpu_s": used.ru_utime + used.ru_stime,
                "max_rss_kib": used.ru_maxrss,
            }
            if child.lease in self._selector.get_map():
                self._selector.unregister(child.lease)
                child.lease.setblocking(False)
                with contextlib.suppress(OSError):  # the reader has gone
                    child.lease.send(json.dumps(end).encode() + b"\n")
            child.lease.close()


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


def main() -> None:
    """Serve the control socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's to answer
    decode_child.prepare()
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    with socket.socket(fileno=int(sys.argv[1])) as control:
        ForkServer(control).run()


if __name__ == "__main__":
    main()
