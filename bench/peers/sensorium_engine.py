"""Our engine as a contestant: sensorium_engine.py FOLDER THREADS WEIGHTS DTYPE."""

import sys
from pathlib import Path
from typing import Literal, cast

import torch
from pipe import Request, Stamps, generate, open_replies, serve

from sensorium.core.api import (
    AppendTokens,
    CloseSequence,
    Failed,
    Generate,
    Generated,
    OpenSequence,
    SamplingParams,
    SequenceId,
    SpanId,
    TurnEnded,
)
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.engine import Engine
from sensorium.core.runner import load_runner


class Ours:
    """`pipe.Engine` over the engine that the server runs, in this process."""

    def __init__(self, engine: Engine) -> None:
        """Take an engine that nobody else steps."""
        self._engine = engine

    def submit(self, index: int, request: Request) -> None:
        """Open a sequence with the prompt and ask for the tokens."""
        identity = SequenceId(index)
        prompt = tuple(request.prompt)
        sampling = SamplingParams(max_tokens=request.max_tokens)
        self._engine.submit(OpenSequence(sequence_id=identity))
        self._engine.submit(AppendTokens(sequence_id=identity, span_id=SpanId(1), token_ids=prompt))
        self._engine.submit(Generate(sequence_id=identity, span_id=SpanId(2), sampling=sampling))

    def step(self) -> list[tuple[int, int]]:
        """Step once; close what has ended."""
        tokens = []
        for event in self._engine.step(0.0):
            match event:
                case Generated():
                    tokens.append((event.sequence_id, len(event.token_ids)))
                case TurnEnded():
                    self._engine.submit(CloseSequence(sequence_id=event.sequence_id))
                case Failed():
                    raise RuntimeError(event.message)
        return tokens

    def settle(self) -> None:
        """Run what is left to its end and give back what it held."""
        while self._engine.has_work():
            self.step()


def main() -> None:
    """Load and serve."""
    replies = open_replies()
    folder, threads, weights, dtype = sys.argv[1:]
    config = EngineConfig(threads=int(threads))
    models = ModelsConfig(
        weights=cast(Literal["auto", "same", "int8", "int4"], weights),
        dtype=cast(Literal["auto", "bfloat16", "float16", "float32"], dtype),
    )
    ours = Ours(Engine(load_runner(Path(folder), models, config), config))

    def answer(requests: list[Request], batch: int) -> Stamps:
        stamps = generate(ours, requests)
        ours.settle()
        return stamps

    def profile(requests: list[Request]) -> str:
        for index, request in enumerate(requests):
            ours.submit(index, request)
        while len(ours.step()) < len(requests):  # until all are decoding
            pass
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for _ in range(requests[0].max_tokens // 2):
                ours.step()
        ours.settle()
        averages = profiler.key_averages()
        return str(averages.table(sort_by="self_cpu_time_total", row_limit=20))

    serve(replies, answer, profile)


if __name__ == "__main__":
    main()
