import json
from pathlib import Path

import pytest
import torch
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
    tiny_model,
)

from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.engine import Engine
from sensorium.core.errors import BadCheckpoint, CoreError, ModelNotFound
from sensorium.core.layers.linear import Weights
from sensorium.core.runner import load_runner


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(checkpoint(tiny_model()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


ENGINE = EngineConfig(threads=1, cache_mib=1, block_size=4)


def test_loaded_folder_answers_like_the_model_it_was_saved_from(folder: Path) -> None:
    engine = Engine(load_runner(folder, ModelsConfig(dtype="float32"), ENGINE), ENGINE)
    open_sequence(engine, 1)
    append(engine, 1, 1, (3, 1, 4, 1, 5))
    generate(engine, 1, 2, 8)
    assert ids_of(run(engine), 1) == answer((3, 1, 4, 1, 5))


def test_auto_settles_on_a_dtype_and_runs(folder: Path) -> None:
    runner = load_runner(folder, ModelsConfig(), ENGINE)
    assert runner.dtype in (torch.bfloat16, torch.float32)
    engine = Engine(runner, ENGINE)
    open_sequence(engine, 1)
    append(engine, 1, 1, (3, 1, 4))
    generate(engine, 1, 2, 4)
    assert len(ids_of(run(engine), 1)) == 4


def test_unknown_family_is_answered_with_the_known_ones(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | {"model_type": "mamba"}))
    with pytest.raises(CoreError, match="unknown model family 'mamba'; known are: llama"):
        load_runner(folder, ModelsConfig(), ENGINE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "isn't JSON"),
        ("[]", "must hold an object"),
        (json.dumps({"model_type": "llama"}), "num_attention_heads"),
        (json.dumps(CONFIG | {"mlp_bias": True}), "mlp_bias"),
        (json.dumps(CONFIG | {"rope_scaling": {"rope_type": "yarn"}}), "rope_scaling"),
    ],
)
def test_config_that_cannot_be_served_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(BadCheckpoint, match=message):
        load_runner(folder, ModelsConfig(), ENGINE)


def test_missing_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json is missing"):
        load_runner(tmp_path, ModelsConfig(), ENGINE)


@pytest.mark.parametrize("weights", ["same", "int8", "int4"])
def test_weights_are_kept_as_the_configuration_says(folder: Path, weights: Weights) -> None:
    models = ModelsConfig(dtype="bfloat16", weights=weights)
    engine = Engine(load_runner(folder, models, ENGINE), ENGINE)
    open_sequence(engine, 1)
    append(engine, 1, 1, (3, 1, 4))
    generate(engine, 1, 2, 4)
    assert len(ids_of(run(engine), 1)) == 4


def test_rounded_weights_in_another_type_are_refused(folder: Path) -> None:
    with pytest.raises(CoreError, match=r'weights = "int8" goes with dtype "bfloat16"'):
        load_runner(folder, ModelsConfig(dtype="float32", weights="int8"), ENGINE)
