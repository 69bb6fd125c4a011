"""How the bench asks a contestant, which runs in a process of its own: a line of JSON each way.

Standard library only, as it is imported inside every peer's environment. A contestant gets
requests with the times they arrive at and answers when each of its tokens came; the bench alone
makes figures of that, so that all are measured alike.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TextIO

Stamps = list[list[float]]
"""Per request the times at which its tokens came, in seconds since the first could be sent."""


@dataclass(frozen=True)
class Request:
    """Greedy generation of exactly `max_tokens` behind `prompt`, sent at `at_s`."""

    at_s: float
    prompt: list[int]
    max_tokens: int


class Engine(Protocol):
    """What batches by itself, one step at a time."""

    def submit(self, index: int, request: Request) -> None:
        """Take request number `index` in."""

    def step(self) -> Iterable[tuple[int, int]]:
        """Advance; return (index, number of new tokens) of the requests that got some."""


def generate(engine: Engine, requests: list[Request]) -> Stamps:
    """Send the requests when they are due and step until each has its tokens."""
    stamps: Stamps = [[] for _ in requests]
    waiting = sorted(range(len(requests)), key=lambda index: requests[index].at_s, reverse=True)
    num_left = sum(request.max_tokens for request in requests)
    num_due = 0  # tokens that submitted requests still lack
    begin = time.perf_counter()
    while num_left:
        now = time.perf_counter() - begin
        while waiting and requests[waiting[-1]].at_s <= now:
            index = waiting.pop()
            engine.submit(index, requests[index])
            num_due += requests[index].max_tokens
        if not num_due:
            time.sleep(max(0.0, requests[waiting[-1]].at_s - now))
            continue
        for index, count in engine.step():
            stamps[index] += [time.perf_counter() - begin] * count
            num_left -= count
            num_due -= count
    return stamps


def open_replies() -> TextIO:
    """Keep standard output for replies: what libraries print from now on goes to standard error."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return replies


def serve(
    replies: TextIO,
    answer: Callable[[list[Request], int], Stamps],
    profile: Callable[[list[Request]], str] | None = None,
) -> None:
    """Say that all is loaded and answer calls until standard input ends.

    `answer` takes requests and how many of them may share a static batch (engines ignore it).
    """
    print(json.dumps("ready"), file=replies, flush=True)
    for line in sys.stdin:
        call = json.loads(line)
        requests = [Request(*fields) for fields in call["requests"]]
        try:
            if call["call"] == "profile" and profile is not None:
                reply: dict[str, object] = {"profile": profile(requests)}
            else:
                reply = {"stamps": answer(requests, call["batch"])}
        except Exception as error:  # told to the bench, which ends the run
            traceback.print_exc()
            reply = {"error": repr(error)}
        print(json.dumps(reply), file=replies, flush=True)
