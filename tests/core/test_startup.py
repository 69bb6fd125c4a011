"""Warm-up and the estimate of how many people may talk at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_encoder import ScriptedEncoder, ScriptedState
from safetensors.torch import save_file
from tiny_model import (
    CONFIG,
    answer,
    append,
    checkpoint,
    generate,
    ids_of,
    open_sequence,
    run,
    tiny_engine,
)
from tiny_text import write_tokenizer

from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import ModelNotFound
from sensorium.core.models.llama import Llama
from sensorium.core.startup import PROBE_S, load_models, measure_capacity, probe_speech, warm_up
from sensorium.encoders.base import Output
from sensorium.encoders.media import MediaFrame


class CostlyEncoder(ScriptedEncoder):
    """A scripted encoder whose passes take time on a clock of its own."""

    def __init__(self, pass_s: float) -> None:
        super().__init__()
        self.now = 0.0
        self._pass_s = pass_s

    def push(
        self, frames: list[tuple[MediaFrame, ...]], states: list[ScriptedState]
    ) -> list[Output]:
        self.now += self._pass_s * len(frames)
        return super().push(frames, states)

    def flush(self, states: list[ScriptedState]) -> list[Output]:
        self.now += self._pass_s * len(states)
        return super().flush(states)


@pytest.mark.parametrize(
    ("num_cores", "pass_s", "capacity"),
    [
        (1, 0.25, 4),  # three passes of 0.25 s in 8 s: 0.4 · 8 / 0.75
        (2, 0.25, 8),
        (2, 0.125, 17),
        (1, 9.0, 1),  # too slow for anybody, yet one is let in
    ],
)
def test_capacity_is_what_the_cores_pay_for(num_cores: int, pass_s: float, capacity: int) -> None:
    encoder = CostlyEncoder(pass_s)
    assert measure_capacity(encoder, num_cores, lambda: encoder.now) == capacity


def test_warm_up_leaves_no_trace() -> None:
    engine = tiny_engine()
    free = engine.stats().num_free_blocks
    warm_up(engine)
    stats = engine.stats()
    assert (stats.num_sequences, stats.num_free_blocks) == (0, free)
    open_sequence(engine, 1)
    append(engine, 1, 1, (1, 2, 3))
    generate(engine, 1, 2)
    assert ids_of(run(engine), 1) == answer((1, 2, 3))


def test_missing_weights_are_named_before_anything_is_loaded(tmp_path: Any) -> None:
    models = ModelsConfig(cache_dir=str(tmp_path))
    with pytest.raises(ModelNotFound, match="sensorium pull smollm2-135m-instruct"):
        load_models(models, EngineConfig())


def test_missing_weights_of_a_sense_are_named(tmp_path: Path) -> None:
    config = CONFIG | {"vocab_size": 512}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(checkpoint(Llama(config)), tmp_path / "model.safetensors")
    write_tokenizer(tmp_path)
    models = ModelsConfig(decoder=str(tmp_path), speech="", cache_dir=str(tmp_path / "cache"))
    with pytest.raises(ModelNotFound, match="sensorium pull efficientnet-lite0"):
        load_models(models, EngineConfig(cache_mib=16))


@pytest.mark.parametrize("rate_hz", [16_000, 24_000])
def test_probe_is_loud_speech_of_the_right_length(rate_hz: int) -> None:
    samples = probe_speech(rate_hz)
    assert len(samples) == PROBE_S * rate_hz
    assert 0.02 < float(abs(samples).mean()) < 0.5
