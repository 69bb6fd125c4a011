"""Modalities and the classes that encode them; a further one is a file and a line."""

import inspect
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch
from inertial import CHANNELS, HOP, RATE_HZ, InertialEncoder, Readings
from muse_checkpoint import cached_tiny_muse
from tiny_model import ids_of, run

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    CloseSequence,
    CloseSpan,
    EngineEvent,
    EngineLoad,
    EngineRequest,
    Generate,
    OpenSequence,
    OpenSpan,
    SamplingParams,
    SequenceId,
    SpanClosed,
    SpanId,
)
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.engine import Engine
from sensorium.core.loop import EngineLoop, LoadedModels
from sensorium.core.startup import load_models
from sensorium.encoders.base import Encoder
from sensorium.encoders.registry import ENCODERS

ONE = SequenceId(1)
HEAD, MOTION, TAIL, REPLY = map(SpanId, range(1, 5))
BEFORE = AppendTokens(sequence_id=ONE, span_id=HEAD, token_ids=(300, 301, 302))
AFTER = AppendTokens(sequence_id=ONE, span_id=TAIL, token_ids=(303, 304))
OPEN = OpenSequence(sequence_id=ONE)
MEASURE = OpenSpan(sequence_id=ONE, span_id=MOTION, modality="inertial")
END = CloseSequence(sequence_id=ONE)
ANSWER = Generate(sequence_id=ONE, span_id=REPLY, sampling=SamplingParams(max_tokens=8))
WIDTH = 64
MODELS = ModelsConfig(speech="", pictures="", dtype="float32")
METHODS = ("open", "ready", "push", "anticipate", "flush")


@pytest.mark.parametrize("name", [name for names in ENCODERS.values() for name in names])
def test_every_registered_class_fits_the_protocol(name: str) -> None:
    module, _, attribute = name.partition(":")
    encoder = getattr(import_module(module), attribute)
    assert list(inspect.signature(encoder.load).parameters) == ["sources"]
    for method in METHODS:
        wanted = inspect.signature(getattr(Encoder, method)).parameters
        assert list(inspect.signature(getattr(encoder, method)).parameters) == list(wanted)


@pytest.fixture(scope="module", name="models")
def load_with_inertial() -> Iterator[LoadedModels]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENCODERS, "inertial", ("inertial:InertialEncoder",))
        config = EngineConfig(threads=1, block_size=4, cache_mib=16)
        models = replace(MODELS, decoder=str(cached_tiny_muse()))
        yield load_models(models, config)


def readings(count: int) -> Readings:
    return np.random.default_rng(1).standard_normal((count, CHANNELS)).astype(np.float32)


def test_a_further_modality_is_one_file_and_one_line(models: LoadedModels) -> None:
    assert models.info.intakes["inertial"].rate_hz == RATE_HZ
    data = readings(47)
    events = answer_to_packets(models, [data[begin : begin + 7] for begin in range(0, 47, 7)])
    (closed,) = [event for event in events if isinstance(event, SpanClosed)]
    assert (closed.num_positions, closed.problem) == (5, None)
    answer = ids_of(events, ONE)
    assert answer == answer_to_rows(models, rows_of(data))
    assert answer != answer_to_rows(models, rows_of(data[::-1]))


def answer_to_packets(models: LoadedModels, packets: list[Readings]) -> list[EngineEvent]:
    """What the whole loop makes of packets of readings, taken one by one."""
    events: list[EngineEvent | EngineLoad] = []
    loop = EngineLoop(models, publish=events.extend, clock=lambda: 0.0)
    times = accumulate(map(len, packets), initial=0)
    media = [
        AppendMedia(sequence_id=ONE, span_id=MOTION, pts=pts, shape=data.shape, data=data.tobytes())
        for pts, data in zip(times, packets, strict=False)
    ]
    close = CloseSpan(sequence_id=ONE, span_id=MOTION)
    requests: list[EngineRequest] = [OPEN, BEFORE, MEASURE, *media, close, AFTER, ANSWER, END]
    for request in requests:
        loop.receive(request)
        while loop.turn() or loop.pool.run_once():
            pass
    return [event for event in events if not isinstance(event, EngineLoad)]


def answer_to_rows(models: LoadedModels, rows: torch.Tensor) -> tuple[int, ...]:
    """What the same engine answers if the rows are put into its slots by hand."""
    engine = models.engine
    assert isinstance(engine, Engine)
    for request in (OPEN, BEFORE, MEASURE):
        engine.submit(request)
    engine.extend_span(ONE, MOTION, rows)
    engine.finish_span(ONE, MOTION)
    engine.submit(AFTER)
    engine.submit(ANSWER)
    answer = ids_of(run(engine), ONE)
    engine.submit(END)
    run(engine)
    return answer


def rows_of(data: Readings) -> torch.Tensor:
    """The rows of a whole clip, without the encoder's code."""
    padded = np.pad(data, ((0, -len(data) % HOP), (0, 0)))
    return torch.from_numpy(padded.reshape(-1, HOP * CHANNELS)) @ InertialEncoder(WIDTH).weight


def test_a_modality_whose_marks_the_checkpoint_lacks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(cached_tiny_muse(), tmp_path / "muse")
    tokenizer = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(tokenizer.replace("image_start", "reserved_7"))
    monkeypatch.setitem(ENCODERS, "image", ("inertial:InertialEncoder",))
    models = replace(MODELS, decoder=str(folder))
    loaded = load_models(models, EngineConfig(threads=1, cache_mib=16))
    assert "image" not in loaded.info.intakes
    assert "image" not in loaded.encoders
    assert "lacks <|image_start|>" in caplog.text
