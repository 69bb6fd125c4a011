"""What the contestants are asked for, and which figure is read off the times of the tokens."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from peers.pipe import Request, Stamps

PROMPT, PREFILL, MANY = 64, 1024, 16
PART_A, PART_B = "A: SmolLM2-135M", "B: Muse of 100M random parameters"


@dataclass(frozen=True)
class Load:
    """One kind of load, and what is read off the times of its tokens."""

    name: str
    requests: Callable[[random.Random], list[Request]]
    rate: Callable[[list[Request], Stamps], float]
    num_at_once: int
    is_decode: bool = False
    max_rounds: int = 1_000


def burst(count: int, length: int, new: int) -> Callable[[random.Random], list[Request]]:
    """Make loads of `count` requests that are there at once; ids that are no control tokens."""
    return lambda draw: [Request(0.0, draw_prompt(draw, length), new) for _ in range(count)]


def arrivals(draw: random.Random) -> list[Request]:
    """Draw 16 requests of different lengths, 100 ms apart on average (a Poisson process)."""
    requests, at_s = [], 0.0
    for _ in range(MANY):
        prompt = draw_prompt(draw, draw.randint(16, 256))
        requests.append(Request(at_s, prompt, draw.randint(32, 128)))
        at_s += draw.expovariate(10)
    return requests


def draw_prompt(draw: random.Random, length: int) -> list[int]:
    """Draw ids that both models have."""
    return [draw.randint(100, 16_000) for _ in range(length)]


def prefill_rate(requests: list[Request], stamps: Stamps) -> float:
    """Prompt tokens per second until every request has its first token."""
    return sum(len(r.prompt) for r in requests) / max(times[0] for times in stamps)


def decode_rate(requests: list[Request], stamps: Stamps) -> float:
    """Tokens per second from when every request has its first token."""
    begin = max(times[0] for times in stamps)
    times = [time for times in stamps for time in times if time > begin]
    return len(times) / (max(times) - begin)


def serving_rate(requests: list[Request], stamps: Stamps) -> float:
    """Tokens per second from the first arrival until the last request has its last token."""
    begin = min(request.at_s for request in requests)
    return sum(map(len, stamps)) / (max(times[-1] for times in stamps) - begin)


def all_loads(new: int) -> dict[str, list[Load]]:
    """Return both parts' loads; `new` tokens are decoded a request."""
    prefill = Load(f"prefill of {PREFILL}, alone", burst(1, PREFILL, 1), prefill_rate, 1)
    # so long that once is enough
    prefill_many = f"prefill of {PREFILL}, {MANY} at once"
    many = Load(prefill_many, burst(MANY, PREFILL, 1), prefill_rate, MANY, max_rounds=1)
    decode = [
        Load(f"decode, {name}", burst(count, PROMPT, new), decode_rate, count, is_decode=True)
        for name, count in (("alone", 1), (f"{MANY} at once", MANY))
    ]
    random_arrivals = Load(f"{MANY} arriving at random", arrivals, serving_rate, MANY)
    return {PART_A: [prefill, *decode, many], PART_B: [prefill, *decode, random_arrivals]}
