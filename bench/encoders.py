"""Muse's encoders at the release's sizes beside transformers' towers, and the machine's limits.

    python bench/encoders.py [--rounds 4] [--parts sound,pictures,streams] [--json FILE]

Random weights, the same on both sides, float32 and bfloat16 apart. Everything is timed in one
process in turn, round after round, so that what else runs on the machine hits all alike; tables
show the best and the median. Sound: a pass over one hop of each of 1 to 32 streams, and from that
and from the clock how many streams are followed in real time. Pictures and a group of video: rows
per second, extrapolated from 4 of 50 layers. The limits are the products of large matrices and the
reading of memory, measured in between. Three minutes and 7 GB.
"""

import argparse
import json
import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from peers.machine import Others, multiply_rate, read_bandwidth
from streams import BEHIND_S, HOP_S, most_streams
from timing import timed, timed_apart
from towers import (
    ALL_LAYERS,
    HOP,
    SOME_LAYERS,
    Towers,
    audio_flops,
    audio_numbers,
    make_towers,
    vision_flops,
)
from transformers.models.muse_spark.modeling_muse_spark import (
    MuseSparkAudioConv1dPaddingCache as PaddingCache,
)

from sensorium.encoders.sizing import grid

BATCHES = (1, 4, 8, 16, 32)
CORES = len(os.sched_getaffinity(0))
SEEN = {"224×224": (224, 224, 4096), "480×640": (480, 640, 4096), "video group": (480, 640, 144)}
"""Height, width and most cells; a group of video has the cells of transformers' own default."""

TRIES = 3
Times = dict[str, list[float]]
"""Seconds of each run, by what was run."""


def sound_ways(towers: Towers, count: int) -> Iterator[tuple[str, Callable[[], list[float]]]]:
    """Yield the ways to encode one hop of `count` streams (of as many for each core, if apart)."""
    random = np.random.default_rng(count)
    samples = random.normal(0, 0.1, (count, HOP)).astype(np.float32)
    clips = [towers.open(count) for _ in range(CORES)]
    caches: list[object] = [PaddingCache() for _ in range(CORES)]  # type: ignore[no-untyped-call]  # untyped there
    yield "ours", lambda: timed(lambda: towers.hear(samples, clips[0]))
    yield (
        "ours, a core each",
        lambda: timed_apart([partial(towers.hear, samples, own) for own in clips]),
    )
    yield "transformers", lambda: timed(lambda: towers.peer_hears(samples, caches[0]))
    if count == 1:
        yield (
            "transformers, a core each",
            lambda: timed_apart([partial(towers.peer_hears, samples, own) for own in caches]),
        )


def groups() -> dict[str, np.ndarray]:
    """Make what is seen, sized as for the towers: [2, H, W, 3] each."""
    made, random = {}, np.random.default_rng(0)
    for name, (height, width, cells) in SEEN.items():
        rows, columns = grid(height, width, cell_px=28, max_cells=cells)
        made[name] = random.integers(0, 256, (2, 28 * rows, 28 * columns, 3), np.uint8)
    return made


def sight_ways(
    towers: Towers, group: np.ndarray
) -> Iterator[tuple[str, Callable[[], list[float]]]]:
    """Yield the ways to encode a group, with some layers and, as "… bare", with none."""
    tower = towers.peer.model.vision_tower
    layers = tower.layers

    def peer(shown: torch.nn.ModuleList) -> list[float]:
        tower.layers = shown
        try:
            return timed(lambda: towers.peer_sees(group), 1)
        finally:
            tower.layers = layers

    yield "ours", lambda: timed(lambda: towers.vision.encode([group]), 1)
    yield "ours bare", lambda: timed(lambda: towers.bare.encode([group]), 1)
    yield "transformers", lambda: peer(layers)
    yield "transformers bare", lambda: peer(layers[:0])


def whole(seen: Times, name: str, choose: Callable[[list[float]], float]) -> float:
    """Extrapolate a time to all layers."""
    bare = choose(seen[f"{name} bare"])
    return bare + (choose(seen[name]) - bare) * ALL_LAYERS / SOME_LAYERS


def in_step(seconds: dict[int, float]) -> float:
    """Return how many streams a pass over all takes HOP_S for, between the measured batches."""
    most, longest = max(seconds.items())
    if longest < HOP_S:
        return most * HOP_S / longest
    return float(np.interp(HOP_S, [0.0, *seconds.values()], [0, *seconds]))


# --- tables -------------------------------------------------------------------------------------


class Figures:
    """What the rounds gave: seconds by type, what was encoded and the way; rates of the machine."""

    def __init__(self) -> None:
        self.heard: dict[str, dict[int, Times]] = defaultdict(lambda: defaultdict(dict))
        self.seen: dict[str, dict[str, Times]] = defaultdict(lambda: defaultdict(dict))
        self.flops: dict[str, float] = defaultdict(float)
        self.bytes_per_s = 0.0
        self.streams: dict[str, dict[str, int]] = defaultdict(dict)

    def measure(self, all_towers: list[Towers], parts: set[str]) -> None:
        """Go through everything once."""
        self.bytes_per_s = max(self.bytes_per_s, read_bandwidth() * 1e9)
        for towers in all_towers:
            name = name_of(towers)
            self.flops[name] = max(self.flops[name], multiply_rate(towers.dtype))
            for count in BATCHES if "sound" in parts else ():
                for way, run in sound_ways(towers, count):
                    self.heard[name][count].setdefault(way, []).extend(run())
            for what, group in groups().items() if "pictures" in parts else ():
                for way, run in sight_ways(towers, group):
                    self.seen[name][what].setdefault(way, []).extend(run())

    def follow(self, towers: Towers, tries: int) -> None:
        """Find how many streams the pool follows."""
        name = name_of(towers)
        most = int(HOP_S * self.flops[name] / audio_flops(towers.sizes))
        for way, one_core_each in {"a core each": True, "all cores a pass": False}.items():
            followed = most_streams(towers.audio, most, one_core_each, BEHIND_S, tries)
            at_once = most_streams(towers.audio, followed, one_core_each, HOP_S, tries)
            self.streams[name][way] = followed
            self.streams[name][f"{way}, each hop in {HOP_S * 1e3:.0f} ms"] = at_once

    def print_sound(self, towers: Towers) -> None:
        """Print milliseconds by batch, the two limits and what share of them we reach."""
        name, sizes = name_of(towers), towers.sizes
        flops, read = audio_flops(sizes), audio_numbers(sizes) * towers.dtype.itemsize
        print(
            f"\n{name}, sound: a hop is {flops / 2e9:.2f} G multiplications, a pass reads "
            f"{read / 1e6:.0f} MB; products run at {self.flops[name] / 1e9:.0f} GFLOP/s\n"
            f"{'ms a hop, best (median)':28}" + "".join(f"{n:>15}" for n in BATCHES)
        )
        heard = self.heard[name]
        for way in heard[1]:
            at_once = CORES if way.endswith("each") else 1
            cells = [
                f"{1e3 * min(t[way]) / n / at_once:.2f} "
                f"({1e3 * statistics.median(t[way]) / n / at_once:.2f})"
                for n, t in heard.items()
                if way in t
            ]
            print(f"  {way:26}" + "".join(f"{cell:>15}" for cell in cells))
        by_products = flops / self.flops[name]
        by_memory = [read / self.bytes_per_s / n for n in BATCHES]
        print(f"  {'limit of products':26}" + f"{1e3 * by_products:15.2f}" * len(BATCHES))
        print(f"  {'limit of memory':26}" + "".join(f"{1e3 * t:15.2f}" for t in by_memory))
        best = [min(min(t["ours"]), min(t["ours, a core each"]) / CORES) for t in heard.values()]
        for label, limits in {
            "ours, share of products'": [by_products] * len(BATCHES),
            "ours, share of the nearer": [max(by_products, t) for t in by_memory],
        }.items():
            shares = [b / (a / n) for a, b, n in zip(best, limits, BATCHES, strict=True)]
            print(f"  {label:26}" + "".join(f"{share:15.0%}" for share in shares))

    def print_streams(self, towers: Towers) -> None:
        """Print how many streams are followed: by the clock, and by the times of passes.

        The clock is for ours alone. Times are what it would show if nothing ever waited or was
        taken at a bad moment: bounds, the peer's too. transformers' cache of a batch takes in no
        streams but those in step.
        """
        name = name_of(towers)
        heard, clock = self.heard[name], self.streams[name]
        best = {n: {way: min(taken) for way, taken in t.items()} for n, t in heard.items()}
        together = in_step({n: t["ours"] for n, t in best.items()})
        apart = CORES * in_step({n: t["ours, a core each"] for n, t in best.items()})
        ours = max(together, apart)
        theirs = {
            "one by one": HOP_S / best[1]["transformers"],
            "one by one, a core each": HOP_S * CORES / best[1]["transformers, a core each"],
            "in step only": in_step({n: t["transformers"] for n, t in best.items()}),
        }
        limit = HOP_S * self.flops[name] / audio_flops(towers.sizes)
        print(f"\n{name}, streams at real time; products alone would allow {limit:.0f}")
        for way, number in clock.items():
            print(f"  {'ours by the clock, ' + way:50}{number:8}")
        print(f"  {'ours by times, in step':50}{ours:8.1f}")
        followed = max(clock.values())
        for way, streams in theirs.items():
            print(
                f"  {'transformers by times, ' + way:50}{streams:8.1f}; ours by the clock "
                f"{followed / streams:.1f} ×, by times {ours / streams:.1f} ×"
            )

    def print_sight(self, towers: Towers) -> None:
        """Print rows per second of the whole tower."""
        name = name_of(towers)
        print(
            f"\n{name}, {ALL_LAYERS} layers, extrapolated from {SOME_LAYERS}\n"
            f"{'rows/s, best (median)':16}{'rows':>6}{'TFLOP':>7}{'ours':>15}{'transformers':>15}"
            f"{'ratio':>7}{'limit':>8}{'share':>7}"
        )
        for (what, times), group in zip(self.seen[name].items(), groups().values(), strict=True):
            patches = group.shape[1] // 14, group.shape[2] // 14
            rows, flops = patches[0] * patches[1] // 4, vision_flops(towers.vision.config, patches)
            sides = ("ours", "transformers")
            ours, theirs = (rows / whole(times, side, min) for side in sides)
            cells = [
                f"{rows / whole(times, side, min):.1f} "
                f"({rows / whole(times, side, statistics.median):.1f})"
                for side in sides
            ]
            limit = rows * self.flops[name] / flops
            print(
                f"  {what:14}{rows:6}{flops / 1e12:7.2f}{cells[0]:>15}{cells[1]:>15}"
                f"{ours / theirs:7.2f}{limit:8.1f}{ours / limit:7.0%}"
            )


def name_of(towers: Towers) -> str:
    """Return the name of a tower's type."""
    return str(towers.dtype).removeprefix("torch.")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", default="sound,pictures,streams")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    parts = set(args.parts.split(","))
    torch.set_num_threads(CORES)
    all_towers = make_towers()
    others, figures = Others([os.getpid()]), Figures()
    for _ in range(args.rounds):
        figures.measure(all_towers, parts)
    for towers in all_towers if "streams" in parts else ():
        figures.follow(towers, TRIES)
    print(
        f"{CORES} cores; memory reads at {figures.bytes_per_s / 1e9:.0f} GB/s; other programs took "
        f"{others.share():.0%} of the cores"
    )
    for towers in all_towers:
        if "sound" in parts:
            figures.print_sound(towers)
        if {"sound", "streams"} <= parts:
            figures.print_streams(towers)
        if "pictures" in parts:
            figures.print_sight(towers)
    if args.json is not None:
        args.json.write_text(json.dumps(vars(figures), indent=1) + "\n")


if __name__ == "__main__":
    main()
