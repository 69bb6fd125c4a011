"""A whole engine process without weights: what the loop drives, and a child that serves it.

`python tests/stub_engine.py FD` serves like `python -m sensorium.core.process FD`. The decoder's
name in ModelsConfig picks what goes wrong: "missing" can't be loaded, "crash PATH" dies while it
loads unless PATH exists (and makes it), "slow" never gets ready, anything else works.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fake_encoder import ScriptedEncoder
from fakes import MODEL, FakeTokenizer

from sensorium.core.api import (
    AppendTokens,
    Closed,
    CloseSequence,
    EngineEvent,
    EngineRequest,
    Failed,
    Generate,
    Generated,
    Interrupt,
    OpenSequence,
    SequenceId,
    SpanId,
    TurnEnded,
    Usage,
)
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import ModelNotFound
from sensorium.core.loop import LoadedModels
from sensorium.core.process import main

ENDLESS, BROKEN, FAULTY = 1001, 1002, 1003
"""Values of `max_tokens` that make a generation go on for ever, break the engine, or fail alone."""


class StubEngine:
    """Answers every Generate with the ids appended before it.

    `slots` is what media spans got; `interrupted` is what it says to an `Interrupt`.
    """

    def __init__(self) -> None:
        self.requests: list[EngineRequest] = []
        self.slots: dict[tuple[SequenceId, SpanId], list[Any]] = {}
        self.finished: list[tuple[SequenceId, SpanId]] = []
        self.interrupted: list[EngineEvent] = []
        self._sequences: dict[SequenceId, tuple[int, ...]] = {}
        self._inbox: list[EngineRequest] = []
        self._endless: dict[SequenceId, Generate] = {}

    def submit(self, request: EngineRequest) -> None:
        """Take a request for the next step."""
        self.requests.append(request)
        self._inbox.append(request)

    def extend_span(self, sequence_id: SequenceId, span_id: SpanId, content: Any) -> None:
        """Remember what a span is filled with."""
        self.slots.setdefault((sequence_id, span_id), []).extend(content)

    def finish_span(self, sequence_id: SequenceId, span_id: SpanId) -> None:
        """Remember that a span is complete."""
        self.finished.append((sequence_id, span_id))

    def has_work(self) -> bool:
        """Tell whether a step would do anything."""
        return bool(self._inbox or self._endless)

    def step(self, now: float) -> list[EngineEvent]:
        """Obey all requests; endless generations give one id."""
        inbox, self._inbox = self._inbox, []
        events = [event for request in inbox for event in self._obey(request)]
        for request in self._endless.values():
            events.append(_generated(request, (0,)))
        return events

    def stats(self) -> Any:
        """Count the sequences, like an EngineStats (whose module would import torch)."""
        return SimpleNamespace(
            num_sequences=len(self._sequences), num_free_blocks=9, num_waiting_tokens=0
        )

    def _obey(self, request: EngineRequest) -> list[EngineEvent]:
        match request:
            case OpenSequence(sequence_id=sequence_id):
                self._sequences[sequence_id] = ()
            case AppendTokens(sequence_id=sequence_id, token_ids=token_ids):
                self._sequences[sequence_id] = token_ids
            case CloseSequence(sequence_id=sequence_id):
                self._endless.pop(sequence_id, None)
                del self._sequences[sequence_id]
                return [Closed(sequence_id=sequence_id)]
            case Generate():
                return self._generate(request)
            case Interrupt(sequence_id=sequence_id):
                self._endless.pop(sequence_id, None)
                return self.interrupted
        return []

    def _generate(self, request: Generate) -> list[EngineEvent]:
        sequence_id = request.sequence_id
        if request.sampling.max_tokens == BROKEN:
            raise RuntimeError("broken step")
        if request.sampling.max_tokens == ENDLESS:
            self._endless[sequence_id] = request
            return []
        if request.sampling.max_tokens == FAULTY:
            del self._sequences[sequence_id]
            return [Failed(sequence_id=sequence_id, code="internal", message="faulty")]
        usage = Usage(num_prompt_tokens=1, num_uncached_tokens=1, num_output_tokens=1)
        ended = TurnEnded(
            sequence_id=sequence_id, span_id=request.span_id, reason="stop", usage=usage
        )
        return [_generated(request, self._sequences[sequence_id]), ended]


def _generated(request: Generate, token_ids: tuple[int, ...]) -> Generated:
    return Generated(sequence_id=request.sequence_id, span_id=request.span_id, token_ids=token_ids)


def stub_models(
    engine: StubEngine | None = None, encode: Callable[[str], list[int]] | None = None
) -> LoadedModels:
    """A stub engine, a scripted encoder and a fake tokenizer, ready to serve."""
    return LoadedModels(
        engine=engine or StubEngine(),
        encoders={"audio": ScriptedEncoder()},
        encode=encode or FakeTokenizer().encode,
        info=MODEL,
    )


def load(models: ModelsConfig, engine: EngineConfig) -> LoadedModels:
    """Load as the decoder's name says."""
    if models.decoder == "missing":
        raise ModelNotFound("the weights of missing are not there; run: sensorium pull missing")
    if models.decoder.startswith("crash "):
        marker = Path(models.decoder.removeprefix("crash "))
        if not marker.exists():
            marker.touch()
            os._exit(3)
    if models.decoder == "slow":
        threading.Event().wait()
    loaded = stub_models()
    return replace(loaded, info=replace(loaded.info, name=models.decoder))


if __name__ == "__main__":
    main(load)
