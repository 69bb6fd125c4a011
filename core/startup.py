"""Models → memory, warmed up and measured: what the engine process does before it says `Ready`."""

import logging
import os
import time
import wave
from collections.abc import Callable
from importlib import resources
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
from sensorium.core.encoding import marks_around, open_encoders
from sensorium.core.engine import Engine
from sensorium.core.errors import CoreError
from sensorium.core.grammar import Grammars
from sensorium.core.loop import LoadedModels
from sensorium.core.runner import load_runner
from sensorium.core.sources import is_path, pins, resolve
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.encoders.base import ClipHints, Encoder
from sensorium.encoders.media import MediaFrame, Pts, Samples

logger = logging.getLogger(__name__)

PASS_EVERY_S = 4.0
"""Partial words of a talker come at least this often at capacity."""

ENCODER_SHARE = 0.4
"""Share of the cores that encoding may take. The rest is the decoder's and the gateway's, and slack
for people who pause at the same time (bench/capacity.py: 10 streams are carried where 0.7 says 18).
"""

PROBE_S = 8.0
PROBE_BATCH = 4


def load_models(models: ModelsConfig, engine: EngineConfig) -> LoadedModels:
    """Load decoder, encoders and tokenizer, run each once, and estimate the capacity.

    Raises ModelNotFound, BadCheckpoint or CoreError with a message that says what to do.
    """
    started_at = time.monotonic()
    cache_dir = Path(models.cache_dir).expanduser() if models.cache_dir else None
    decoder_dir = resolve(models.decoder, cache_dir)
    num_threads = engine.threads or len(os.sched_getaffinity(0))
    runner = load_runner(decoder_dir, models, engine)
    torch.set_num_threads(num_threads)
    tokenizer = Tokenizer(decoder_dir)
    core = Engine(runner, engine, grammars=Grammars(tokenizer, runner.shape.vocab_size))
    encoders = open_encoders(models, decoder_dir, runner.dtype, num_threads)
    marks = marks_around(decoder_dir, encoders)
    warm_up(core)
    capacity = measure_capacity(encoders["audio"], num_threads) if "audio" in encoders else 0
    info = ModelInfo(
        name=_short(models.decoder),
        max_positions=core.max_positions,
        dtype=str(runner.dtype).removeprefix("torch."),
        speech_languages=_languages(models.speech),
        intakes={modality: encoder.intake for modality, encoder in encoders.items()},
        capacity=engine.capacity or capacity or engine.max_sequences,
    )
    logger.info("loaded in %.1f s: %s", time.monotonic() - started_at, info)
    return LoadedModels(
        engine=core,
        encoders=encoders,
        encode=tokenizer.encode,
        info=info,
        marks=marks,
        num_encoder_threads=num_threads,
        encoder_cache_mib=engine.encoder_cache_mib,
    )


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

    Somebody who talks for PROBE_S costs a pass every PASS_EVERY_S and a last one. Both are measured
    on PROBE_BATCH clips of real speech, in CPU time of all threads together, so that a neighbour's
    load at the start of the server doesn't count:

        capacity = ENCODER_SHARE · num_cores · PROBE_S · PROBE_BATCH
                   / (PROBE_S / PASS_EVERY_S · pass + last)

    An encoder that makes rows hears everything once, so it is one pass.
    """
    _time_clips(encoder, 1, cpu_clock)  # first use: allocations, thread pools, caches
    pass_s, last_s = _time_clips(encoder, PROBE_BATCH, cpu_clock)
    logger.info("%d windows take %.2f s of CPU, their ends %.2f s", PROBE_BATCH, pass_s, last_s)
    num_passes = 1.0 if encoder.intake.gives_rows else PROBE_S / PASS_EVERY_S
    cost_s = (num_passes * pass_s + last_s) / PROBE_BATCH
    return max(1, int(ENCODER_SHARE * num_cores * PROBE_S / max(cost_s, 1e-6)))


def _time_clips(
    encoder: Encoder[Any], size: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """Seconds of one live pass over `size` clips, and of ending them."""
    rate_hz = encoder.intake.rate_hz
    frame = MediaFrame(pts=Pts(0), rate_hz=rate_hz, data=probe_speech(rate_hz))
    states = [encoder.open(ClipHints()) for _ in range(size)]
    started_at = clock()
    encoder.push([(frame,)] * size, states)
    pushed_at = clock()
    encoder.flush(states)
    return pushed_at - started_at, clock() - pushed_at


def probe_speech(rate_hz: int) -> Samples:
    """Return PROBE_S of speech (J. F. Kennedy, 1961, public domain) at about the right rate.

    Interpolated linearly: good enough to cost what speech costs.
    """
    with (
        (resources.files("sensorium.core") / "probe.wav").open("rb") as file,
        wave.open(file) as clip,
    ):
        pcm = np.frombuffer(clip.readframes(clip.getnframes()), "<i2")
        source_hz = clip.getframerate()
    times = np.arange(round(PROBE_S * rate_hz)) * source_hz / rate_hz
    return np.interp(times, np.arange(len(pcm)), pcm / 32768).astype(np.float32)


def _languages(speech: str) -> tuple[str, ...]:
    """ISO 639-1 codes that a speech model knows, ("*",) for many; the name tells if no pin does."""
    if speech in pins():
        return pins()[speech].languages
    return ("en",) if speech.rstrip("/").endswith(".en") else ("*",)


def _short(name: str) -> str:
    """The name of a model, or the folder's if a path was given."""
    return Path(name).name if is_path(name) else name
