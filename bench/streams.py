"""How many streams of sound the encoder pool follows by the clock, each in a phase of its own."""

import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.media import MediaFrame, Pts
from sensorium.encoders.muse_audio import MuseAudio
from sensorium.encoders.pool import EncoderPool

HOP, RATE_HZ, HOP_S = 1920, 24_000, 0.08
NUM_HOPS = 25
CORES = len(os.sched_getaffinity(0))
IDLE_S = 0.0002

BEHIND_S = 2 * HOP_S
"""A stream is followed if each hop is out before the next but one is complete: none piles up."""


@dataclass
class _Told:
    """When each hop of each stream was complete and when it was out."""

    due: dict[int, list[float]] = field(default_factory=dict)
    num_out: Counter[int] = field(default_factory=Counter)
    late_s: float = 0.0

    def take(self, stream: int, num_ticks: int, output: Output, final: bool) -> None:
        if output.problem:
            raise SystemExit(output.problem)
        self.num_out[stream] += num_ticks // HOP
        last = self.num_out[stream] - 1
        first = last + 1 - num_ticks // HOP
        self.late_s = max(self.late_s, time.monotonic() - self.due[stream][first])


def slowest_hop_s(
    encoder: MuseAudio, num_streams: int, one_core_each: bool, limit_s: float, seed: int
) -> float:
    """Let streams talk for two seconds; return how long a hop took at most once it was complete.

    With `one_core_each` the pool has a thread a core, as in `serve`; without, one thread
    whose operators use all cores. A run ends when a hop took longer than `limit_s`.
    """
    told = _Told()
    pool = EncoderPool({"audio": encoder}, on_output=told.take, num_threads=CORES)
    phases = random.Random(seed)
    begin = time.monotonic() + 0.2
    for stream in range(num_streams):
        start = begin + phases.random() * HOP_S
        told.due[stream] = [start + i * HOP_S for i in range(NUM_HOPS)]
        pool.open(stream, "audio", ClipHints())
    ended = threading.Event()
    alone = threading.Thread(target=_serve, args=(pool, ended))
    if one_core_each:
        pool.start()
    else:
        alone.start()
    try:
        _talk(pool, told, limit_s)
    finally:
        ended.set()
        if one_core_each:
            pool.stop()
        else:
            alone.join()
    is_complete = sum(told.num_out.values()) == num_streams * NUM_HOPS
    return told.late_s if is_complete else np.inf


def _talk(pool: EncoderPool[int], told: _Told, limit_s: float) -> None:
    sound = np.random.default_rng(0).normal(0, 0.1, HOP).astype(np.float32)
    ready = sorted((at, s, i) for s, due in told.due.items() for i, at in enumerate(due))
    for at, stream, number in ready:
        if told.late_s > limit_s:
            return
        time.sleep(max(0.0, at - time.monotonic()))  # hops come at speaking pace
        pool.push(stream, MediaFrame(pts=Pts(number * HOP), rate_hz=RATE_HZ, data=sound))
    deadline = time.monotonic() + limit_s
    while sum(told.num_out.values()) < len(ready) and time.monotonic() < deadline:
        time.sleep(0.005)  # between two looks, up to the deadline


def _serve(pool: EncoderPool[int], ended: threading.Event) -> None:
    while not ended.is_set():
        if not pool.run_once():
            time.sleep(IDLE_S)  # nothing is ready yet: look again soon


def most_streams(
    encoder: MuseAudio, most: int, one_core_each: bool, limit_s: float, tries: int
) -> int:
    """Return for how many streams, at most `most`, every hop is out in `limit_s`, by bisection.

    A number counts if one of `tries` runs goes well, so that a core that another program takes for
    a moment decides nothing.
    """
    good, bad = 0, most + 1
    while bad - good > 1:
        number = min(bad - 1, max(good + 1, round(good + 0.6 * (bad - good))))
        runs = (
            slowest_hop_s(encoder, number, one_core_each, limit_s, seed) for seed in range(tries)
        )
        if any(slowest <= limit_s for slowest in runs):
            good = number
        else:
            bad = number
    return good
