"""Decoding beside transformers, vLLM and llama.cpp, in one run: tokens per second, and the limits.

    python bench/decoder.py [--without vllm,llama] [--repeat 3] [--json FILE] [--profile]

Part A is SmolLM2-135M from the same files: prefill and decode, alone and at 16. Part B is a random
Muse configuration of 100M parameters beside transformers: alone, as a static batch, and with
requests that arrive at random. Every contestant is a process of its own that idles while another is
asked; rounds go through all of them in turn. Figures are made here from the times at which tokens
came, and a missing token ends the run. vLLM and llama.cpp get environments of their own under
~/.cache/sensorium/peers, made by the first run (a quarter of an hour). --profile prints the
operators of our decode steps instead.
"""

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from peers.contestant import Contestant
from peers.environments import RECIPES, python_of
from peers.loads import MANY, PART_A, PROMPT, Load, all_loads, arrivals, burst
from peers.machine import Others, read_bandwidth
from peers.muse import write_muse
from safetensors import safe_open

from sensorium.core.config import ModelsConfig
from sensorium.core.sources import resolve

START_LIMIT_S, CALL_LIMIT_S = 420, 180
OURS, PEERS = "Sensorium", {"transformers", "vllm", "llama"}
SIZES = {"bfloat16": 2, "float32": 4}


# --- contestants --------------------------------------------------------------------------------


def sensorium(folder: Path, threads: int, weights: str, dtype: str = "bfloat16") -> Contestant:
    """Our engine with one way to keep matrices."""
    numbers, groups = num_parameters(folder), folder / "groups.safetensors"
    match weights:
        case "same":
            size = SIZES[dtype] * numbers
        case "int8":  # a scale a row is little
            size = numbers
        case _:  # the GGUF's own groups; "auto" takes them for few rows
            size = groups.stat().st_size
    return Contestant(
        f"{OURS} {weights}",
        "sensorium_engine.py",
        [str(folder), str(threads), weights, dtype],
        bytes_per_step=size,
    )


def transformers(folder: Path, threads: int, dtype: str = "bfloat16", *experts: str) -> Contestant:
    """transformers' `generate`, in our environment, with its default or another way to experts."""
    return Contestant(
        " ".join(("transformers", *(experts or (dtype,)))),
        "transformers_generate.py",
        [str(folder), str(threads), dtype, *experts],
        environment="transformers",
        bytes_per_step=SIZES[dtype] * num_parameters(folder),
    )


def vllm(folder: Path, threads: int) -> Contestant:
    """vLLM's CPU build, in its environment."""
    return Contestant(
        "vLLM",
        "vllm_engine.py",
        [str(folder), str(threads), "bfloat16"],
        environment="vllm",
        bytes_per_step=2 * num_parameters(folder),
    )


def llama(folder: Path, threads: int) -> Contestant:
    """llama.cpp in its environment, on the file that our weights were made from."""
    (file,) = (folder / "source").glob("*.gguf")
    return Contestant(
        "llama.cpp",
        "llama_engine.py",
        [str(file), str(threads)],
        environment="llama",
        bytes_per_step=file.stat().st_size,
    )


def num_parameters(folder: Path) -> int:
    """Count a checkpoint's numbers; tied embeddings are there once, read by the output."""
    with safe_open(folder / "model.safetensors", "pt") as tensors:
        shapes = [tensors.get_slice(name).get_shape() for name in sorted(tensors.keys())]
    return sum(torch.Size(shape).numel() for shape in shapes)


def plain_copy(folder: Path, into: Path) -> Path:
    """Link a model's published files: vLLM would load our groups too."""
    into.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (into / name).symlink_to(folder / name)
    return into


@contextmanager
def running(contestants: list[Contestant]) -> Iterator[list[Contestant]]:
    """Start all, one after another; end all."""
    try:
        for contestant in contestants:
            tell(f"starting {contestant.name}")
            contestant.start(START_LIMIT_S)
            for count in (1, MANY):  # what is made or compiled on first use
                warm_up = burst(count, PROMPT, 4)(random.Random(str(count)))
                contestant.generate(warm_up, count, START_LIMIT_S)
        yield contestants
    finally:
        for contestant in contestants:
            contestant.stop()


# --- measuring ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """What one part gave.

    `rates` are tokens per second by load and contestant, one a round; `limits` those that reading
    the weights from memory allows; `others` is the share of the cores that other programs took.
    """

    part: str
    rates: dict[str, dict[str, list[float]]]
    limits: dict[str, dict[str, float]]
    gb_per_s: float
    others: float


def measure(
    part: str, loads: list[Load], contestants: list[Contestant], repeat: int, deadline: float
) -> Figures:
    """Ask all contestants for all loads, `repeat` rounds or as many as end before `deadline`."""
    rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    others = Others([os.getpid(), *(contestant.pid for contestant in contestants)])
    gb_per_s = longest = 0.0
    for number in range(repeat):
        begin = time.monotonic()
        if number and begin + longest > deadline:
            tell(f"{part}: there was time for {number} rounds only")
            break
        gb_per_s = max(gb_per_s, read_bandwidth())
        for load in loads:
            if number >= load.max_rounds:
                continue
            requests = load.requests(random.Random(f"{load.name} {number}"))  # no cache knows them
            for contestant, batch, label in ways(contestants, load, number):
                stamps = contestant.generate(requests, batch, CALL_LIMIT_S)
                rates[load.name][label].append(load.rate(requests, stamps))
                tell(f"  {load.name}, {label}: {rates[load.name][label][-1]:.1f}")
        longest = max(longest, time.monotonic() - begin)
    limits = {
        load.name: {
            contestant.name: load.num_at_once * gb_per_s * 1e9 / contestant.bytes_per_step
            for contestant in contestants
        }
        for load in loads
        if load.is_decode and part == PART_A  # a step of Muse reads the experts that it chose
    }
    by_load = {name: dict(by_label) for name, by_label in rates.items()}
    return Figures(part, by_load, limits, gb_per_s, others.share())


def ways(
    contestants: list[Contestant], load: Load, number: int
) -> Iterator[tuple[Contestant, int, str]]:
    """Pair contestants with how many requests may share a static batch, and a label.

    transformers also serves random arrivals one after another, in round 0: it takes a minute.
    """
    for contestant in contestants:
        yield contestant, load.num_at_once, contestant.name
        if load.requests is arrivals and contestant.environment == "transformers" and not number:
            yield contestant, 1, f"{contestant.name}, in turn"


def tell(text: str) -> None:
    """Show how far the run is."""
    print(text, file=sys.stderr, flush=True)


def print_figures(figures: Figures) -> None:
    """Print a table a load: best, median, our first row's best over theirs, the memory's limit."""
    print(
        f"\n{figures.part}: memory reads at {figures.gb_per_s:.0f} GB/s; other programs took "
        f"{figures.others:.0%} of the cores; tokens per second"
    )
    for name, by_label in figures.rates.items():
        print(f"\n{name:28}{'best':>8}{'median':>8}{'ours ÷ it':>11}{'limit':>8}")
        ours_best = max(next(iter(by_label.values())))
        for label, rates in by_label.items():
            limit = figures.limits.get(name, {}).get(label)
            print(
                f"  {label:26}{max(rates):8.0f}{statistics.median(rates):8.0f}"
                f"{ours_best / max(rates):11.2f}" + (f"{limit:8.0f}" if limit else "")
            )


def print_profile(contestants: list[Contestant], new: int) -> None:
    """Print the operators of decode steps, alone and at 16."""
    for contestant in contestants:
        for count in (1, MANY):
            requests = burst(count, PROMPT, new)(random.Random(0))
            print(f"\n{contestant.name}, {count} at once, {new // 2} steps")
            print(contestant.profile(requests, CALL_LIMIT_S))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=ModelsConfig().decoder)
    parser.add_argument("--parts", default="A,B")
    parser.add_argument("--without", default="", help="any of vllm, llama, transformers")
    parser.add_argument("--weights", default="auto,int4", help="of ours, in part A")
    parser.add_argument("--muse-dtype", default="bfloat16", help="of ours and the file, in part B")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit-s", type=float, default=780, help="no round ends after it")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ended by another: end the contestants
    without = PEERS if args.profile else set(args.without.split(","))
    torch.set_num_threads(args.threads)
    folder = resolve(args.model).resolve()
    for peer in RECIPES.keys() - without if "A" in args.parts else ():
        python_of(peer)  # before the time counts
    begin = time.monotonic()
    results: list[Figures] = []
    with tempfile.TemporaryDirectory() as temporary:
        muse = Path(temporary) / "muse"
        for part, loads in all_loads(args.new_tokens).items():
            if part[0] not in args.parts.split(","):
                continue
            if part == PART_A:
                ours = [sensorium(folder, args.threads, kept) for kept in args.weights.split(",")]
                plain = plain_copy(folder, Path(temporary) / "plain")
                theirs = [peer(plain, args.threads) for peer in (transformers, vllm)]
                theirs.append(llama(folder, args.threads))
                deadline = begin + args.limit_s * 0.6
            else:
                write_muse(muse, getattr(torch, args.muse_dtype))
                ours = [sensorium(muse, args.threads, "same", args.muse_dtype)]
                theirs = [
                    transformers(muse, args.threads, args.muse_dtype, *experts)
                    for experts in ((), ("batched_mm",))
                ]
                deadline = begin + args.limit_s
            peers = [peer for peer in theirs if peer.environment not in without]
            with running([*ours, *peers]) as contestants:
                if args.profile:
                    print_profile(contestants, args.new_tokens)
                else:
                    results.append(measure(part, loads, contestants, args.repeat, deadline))
                    print_figures(results[-1])
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(figures) for figures in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
