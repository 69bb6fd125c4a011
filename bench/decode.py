"""Decoder tokens per second: 1, 4 and 16 sequences, and prefill; transformers in the same run.

    python bench/decode.py [--model smollm2-135m-instruct] [--dtype auto] [--threads 0] [--repeat 3]

Prints a table. Each figure is the best of `--repeat` runs. Decoding begins behind a prompt of 64
tokens; transformers decodes a static batch with its own dynamic cache.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from sensorium.core.api import (
    AppendTokens,
    CloseSequence,
    Generate,
    OpenSequence,
    SamplingParams,
    SequenceId,
    SpanId,
)
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.engine import Engine
from sensorium.core.runner import load_runner
from sensorium.core.sources import resolve

BATCHES = (1, 4, 16)
PROMPT, PREFILL, NEW = 64, 1024, 64


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=ModelsConfig().decoder)
    parser.add_argument("--dtype", default="auto", choices=("auto", "bfloat16", "float32"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0 = all cores")
    args = parser.parse_args()
    folder = resolve(args.model)
    config = EngineConfig(threads=args.threads)
    runner = load_runner(folder, ModelsConfig(dtype=args.dtype), config)
    engine = Engine(runner, config)
    from transformers import LlamaForCausalLM  # the peer; not needed to import this file

    peer = LlamaForCausalLM.from_pretrained(folder, dtype=runner.dtype)
    rows: list[tuple[str, float, float]] = []
    for count in BATCHES:
        rows.append(
            (
                f"decode, {count} at once",
                best(partial(decode_ours, engine, count), args.repeat),
                best(partial(decode_peer, peer, count), args.repeat),
            )
        )
    rows.append(
        (
            f"prefill of {PREFILL}",
            best(partial(prefill_ours, engine), args.repeat),
            best(partial(prefill_peer, peer), args.repeat),
        )
    )
    print(f"{args.model}, {runner.dtype}, {torch.get_num_threads()} threads; tokens/s")
    print(f"{'':24}{'sensorium':>12}{'transformers':>14}")
    for name, ours, theirs in rows:
        print(f"{name:24}{ours:12.0f}{theirs:14.0f}")


def best(measure: Callable[[], float], repeat: int) -> float:
    """Return the highest of some figures, the one least disturbed by other programs."""
    return max(measure() for _ in range(repeat))


def prompt_ids(count: int, seed: int) -> tuple[int, ...]:
    """Draw ids that are no control tokens."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(100, 40_000, (count,), generator=generator).tolist())


def start(engine: Engine, count: int, length: int) -> list[SequenceId]:
    """Open sequences with a prompt each."""
    ids = [SequenceId(i) for i in range(count)]
    for i in ids:
        engine.submit(OpenSequence(sequence_id=i))
        engine.submit(
            AppendTokens(sequence_id=i, span_id=SpanId(1), token_ids=prompt_ids(length, i))
        )
    return ids


def close(engine: Engine, ids: list[SequenceId]) -> None:
    """Give everything back."""
    for i in ids:
        engine.submit(CloseSequence(sequence_id=i))
    finish(engine)


def finish(engine: Engine) -> float:
    """Step until nothing is left to do; return the seconds it took."""
    begin = time.perf_counter()
    while engine.has_work():
        engine.step(0.0)
    return time.perf_counter() - begin


def decode_ours(engine: Engine, count: int) -> float:
    """Tokens per second of `count` sequences, their prompts prefilled before."""
    ids = start(engine, count, PROMPT)
    finish(engine)
    for i in ids:
        sampling = SamplingParams(max_tokens=NEW)
        engine.submit(Generate(sequence_id=i, span_id=SpanId(2), sampling=sampling))
    seconds = finish(engine)
    close(engine, ids)
    return count * NEW / seconds


def prefill_ours(engine: Engine) -> float:
    """Positions per second of one long prompt, in chunks of a step's budget."""
    ids = start(engine, 1, PREFILL)
    seconds = finish(engine)
    close(engine, ids)
    return PREFILL / seconds


@torch.inference_mode()
def decode_peer(model: Any, count: int) -> float:
    """The same with transformers: greedy steps over a static batch."""
    out = model(torch.tensor([prompt_ids(PROMPT, i) for i in range(count)]), use_cache=True)
    begin = time.perf_counter()
    for _ in range(NEW):
        ids = out.logits[:, -1].argmax(-1, keepdim=True)
        out = model(ids, past_key_values=out.past_key_values, use_cache=True)
    return count * NEW / (time.perf_counter() - begin)


@torch.inference_mode()
def prefill_peer(model: Any) -> float:
    """The same with transformers: the whole prompt in one pass."""
    ids = torch.tensor([prompt_ids(PREFILL, 0)])
    begin = time.perf_counter()
    model(ids, use_cache=True, logits_to_keep=1)
    return PREFILL / (time.perf_counter() - begin)


if __name__ == "__main__":
    main()
