"""Which encoders go with a checkpoint, and which it can't have for want of marks."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from muse_checkpoint import cached_tiny_muse

from sensorium.core.config import ModelsConfig
from sensorium.core.encoding import marks_around, open_encoders
from sensorium.core.errors import BadCheckpoint, ModelNotFound
from sensorium.core.text.tokenizer import Tokenizer

MODALITIES = ("audio", "image", "video")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    shutil.copytree(cached_tiny_muse(), tmp_path / "tiny")
    return tmp_path / "tiny"


def test_checkpoints_own_encoders_come_with_their_marks() -> None:
    folder = cached_tiny_muse()
    encoders = open_encoders(ModelsConfig(), folder, torch.float32, 1, MODALITIES)
    names = {modality: encoder.intake.encoder for modality, encoder in encoders.items()}
    assert names == {"audio": "muse-spark-audio", "image": "muse-image", "video": "muse-video"}
    marks = marks_around(folder, encoders)
    control = Tokenizer(folder).control
    assert (marks["audio"].start, marks["audio"].end) == (
        control("<|soft_audio_start|>"),
        control("<|soft_audio_end|>"),
    )
    assert marks["image"].placeholder == control("<|patch|>")
    assert marks["video"].separator == control("<|vid_frame_separator|>")


def test_only_what_is_asked_for_is_opened() -> None:
    encoders = open_encoders(ModelsConfig(), cached_tiny_muse(), torch.float32, 1, ("image",))
    assert list(encoders) == ["image"]


def test_encoder_without_marks_is_dropped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A published tokenizer had reserved names in place of the sound marks."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = folder / name
        path.write_text(path.read_text().replace("<|soft_audio_end|>", "<|reserved_1464|>"))
    encoders = open_encoders(ModelsConfig(), folder, torch.float32, 1, MODALITIES)
    with caplog.at_level(logging.WARNING):
        marks = marks_around(folder, encoders)
    assert sorted(encoders) == sorted(marks) == ["image", "video"]
    assert "no audio will be taken" in caplog.text
    assert "<|soft_audio_end|>" in caplog.text


def test_decoder_without_towers_has_the_models_that_are_named(folder: Path) -> None:
    """Here none, so that it is left without senses."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["audio_config"], config["vision_config"]
    path.write_text(json.dumps(config))
    models = ModelsConfig(speech="", pictures="")
    assert open_encoders(models, folder, torch.float32, 1, MODALITIES) == {}


def test_model_that_was_never_pulled_is_named(folder: Path, tmp_path: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["audio_config"]
    path.write_text(json.dumps(config))
    models = ModelsConfig(cache_dir=str(tmp_path / "empty"))
    with pytest.raises(ModelNotFound, match="sensorium pull"):
        open_encoders(models, folder, torch.float32, 1, ("audio",))


def test_checkpoint_without_its_towers_tensors_is_bad(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["audio_config"]["hidden_sizes"][0] = 32
    path.write_text(json.dumps(config))
    with pytest.raises(BadCheckpoint, match="encoder can't be loaded"):
        open_encoders(ModelsConfig(), folder, torch.float32, 1, ("audio",))
