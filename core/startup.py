"""Models → memory, warmed up and measured: what the engine process does before it says `Ready`."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sensorium.core.api import (
    AppendTokens,
    Closed,
    CloseSequence,
    EngineEvent,
    Generate,
    ModelInfo,
    OpenSequence,
    SamplingParams,
    SequenceId,
    SpanId,
    TurnEnded,
)
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.engine import Engine
from sensorium.core.errors import BadCheckpoint, CoreError
from sensorium.core.loop import LoadedModels
from sensorium.core.runner import load_runner
from sensorium.core.sources import is_path, pins, resolve
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.encoders.base import ClipHints, Encoder
from sensorium.encoders.media import AudioFrame, Pts, Samples
from sensorium.encoders.registry import encoder_class

logger = logging.getLogger(__name__)

PASS_EVERY_S = 4.0
"""Partial words of a talker come at least this often at capacity."""

ENCODER_SHARE = 0.7
"""Share of the cores that encoding may take; the rest is the decoder's and the gateway's."""

PROBE_S = 8.0
PROBE_BATCH = 4
SPEECH_PER_PROBE = 1.25
"""What a pass over speech costs, in passes over the probe, which is noise and gives no words to
decode. tiny.en, batches of four, a live beam of 2: 0.77 s against 0.62 s of CPU."""


def load_models(models: ModelsConfig, engine: EngineConfig) -> LoadedModels:
    """Load decoder, encoders and tokenizer, run each once, and estimate the capacity.

    Raises ModelNotFound, BadCheckpoint or CoreError with a message that says what to do.
    """
    started_at = time.monotonic()
    cache_dir = Path(models.cache_dir).expanduser() if models.cache_dir else None
    decoder_dir = resolve(models.decoder, cache_dir)
    speech_dir = resolve(models.speech, cache_dir)
    num_threads = engine.threads or len(os.sched_getaffinity(0))
    runner = load_runner(decoder_dir, models, engine)
    torch.set_num_threads(num_threads)
    core = Engine(runner, engine)
    speech = _load_speech(speech_dir, num_threads)
    warm_up(core)
    capacity = measure_capacity(speech, num_threads)  # warms the encoder up as well
    info = ModelInfo(
        name=_short(models.decoder),
        max_positions=core.max_positions,
        dtype=str(runner.cache.layer(0)[0].dtype).removeprefix("torch."),
        speech_encoder=_short(models.speech),
        audio_rate_hz=speech.rate_hz,
        speech_languages=_languages(models.speech),
        capacity=engine.capacity or capacity,
    )
    logger.info("loaded in %.1f s: %s", time.monotonic() - started_at, info)
    return LoadedModels(
        engine=core, encoders={"audio": speech}, encode=Tokenizer(decoder_dir).encode, info=info
    )


def _load_speech(model_dir: Path, num_threads: int) -> Encoder[Any]:
    """Load the speech encoder; raises BadCheckpoint for what its library can't read."""
    try:
        speech: Encoder[Any] = encoder_class("audio")(
            model_dir, threads=num_threads, compute_type="int8"
        )
    except (RuntimeError, ValueError, OSError, KeyError) as error:
        raise BadCheckpoint(f"{model_dir} holds no speech model that runs here: {error}") from error
    return speech


def warm_up(engine: Engine) -> None:
    """Run one prefill and one decode step, so that nobody's first turn pays for first use.

    Raises CoreError if the model can't do it.
    """
    sequence_id = SequenceId(0)
    engine.submit(OpenSequence(sequence_id=sequence_id))
    engine.submit(
        AppendTokens(sequence_id=sequence_id, span_id=SpanId(1), token_ids=tuple(range(32)))
    )
    engine.submit(
        Generate(sequence_id=sequence_id, span_id=SpanId(2), sampling=SamplingParams(max_tokens=2))
    )
    _step_until(engine, TurnEnded)
    engine.submit(CloseSequence(sequence_id=sequence_id))
    _step_until(engine, Closed)


def _step_until(engine: Engine, kind: type[EngineEvent]) -> None:
    events: list[EngineEvent] = []
    while engine.has_work():
        events += engine.step(time.monotonic())
    if not any(isinstance(event, kind) for event in events):
        raise CoreError(f"the engine failed its first step: {events}")


def measure_capacity(
    encoder: Encoder[Any], num_cores: int, cpu_clock: Callable[[], float] = time.process_time
) -> int:
    """Estimate how many people the encoder can follow at once in real time, at least 1.

    In PROBE_S of speech a talker needs a pass every PASS_EVERY_S, and a final one that costs about
    the same. `pass` is the CPU time of one pass over PROBE_BATCH clips, all threads together, so
    that a neighbour's load at the start of the server doesn't count:

        capacity = ENCODER_SHARE · num_cores · PROBE_S · PROBE_BATCH
                   / ((PROBE_S / PASS_EVERY_S + 1) · SPEECH_PER_PROBE · pass)
    """
    _time_pass(encoder, 1, cpu_clock)  # first use: allocations, thread pools, caches
    pass_s = _time_pass(encoder, PROBE_BATCH, cpu_clock)
    logger.info("a pass over %d windows takes %.3f s of CPU", PROBE_BATCH, pass_s)
    cost_s = (PROBE_S / PASS_EVERY_S + 1) * SPEECH_PER_PROBE * pass_s / PROBE_BATCH
    return max(1, int(ENCODER_SHARE * num_cores * PROBE_S / max(cost_s, 1e-6)))


def _time_pass(encoder: Encoder[Any], size: int, clock: Callable[[], float]) -> float:
    """Seconds of one live pass over `size` clips."""
    num_samples = round(PROBE_S * encoder.rate_hz)
    frame = AudioFrame(pts=Pts(0), rate_hz=encoder.rate_hz, samples=_probe(num_samples))
    states = [encoder.open(ClipHints()) for _ in range(size)]
    started_at = clock()
    encoder.push([frame] * size, states)
    return clock() - started_at


def _probe(num_samples: int) -> Samples:
    """Seeded noise."""
    noise = np.random.default_rng(0).standard_normal(num_samples)
    return (0.05 * noise).astype(np.float32)


def _languages(speech: str) -> tuple[str, ...]:
    """ISO 639-1 codes that a speech model knows, ("*",) for many; the name tells if no pin does."""
    if speech in pins():
        return pins()[speech].languages
    return ("en",) if speech.rstrip("/").endswith(".en") else ("*",)


def _short(name: str) -> str:
    """The name of a model, or the folder's if a path was given."""
    return Path(name).name if is_path(name) else name
