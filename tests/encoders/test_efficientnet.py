"""EfficientNet-lite0: its arithmetic on random weights, its answers with the real ones."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pictures import load_picture
from safetensors.torch import save_file

from sensorium.core.sources import resolve
from sensorium.encoders.efficientnet import (
    PASS_PICTURES,
    Classifier,
    EfficientNetLite0,
    class_names,
    prepare,
)
from sensorium.encoders.media import Pixels


@pytest.fixture(scope="module")
def classifier() -> Classifier:
    torch.set_num_threads(1)
    return Classifier(resolve("efficientnet-lite0"))


@pytest.fixture(scope="module")
def random_net() -> EfficientNetLite0:
    torch.manual_seed(3)
    return EfficientNetLite0()


def write_model(folder: Path, tensors: dict[str, torch.Tensor], model_type: str) -> Path:
    """Lay a model out as a pull leaves it."""
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    save_file(tensors, folder / "model.safetensors")
    return folder


def noise(height: int, width: int, seed: int) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "index", "called"),
    [
        ("cat_chelsea.png", 285, "Egyptian cat"),
        ("elephant_sunset.jpg", 386, "African elephant"),
        ("leopard.jpg", 288, "leopard"),
        ("grapefruit_slice.jpg", 950, "orange"),
    ],
)
def test_real_photographs_are_recognised(
    classifier: Classifier, name: str, index: int, called: str
) -> None:
    [[best, second]] = classifier.classify([load_picture(name)], 2)
    assert best.name == class_names()[index] == called
    assert 0.25 < best.probability < 1
    assert second.probability < best.probability


def test_company_changes_no_answer(classifier: Classifier) -> None:
    pictures = [noise(40 + i, 60, seed=i) for i in range(PASS_PICTURES + 1)]
    pictures.append(load_picture("leopard.jpg"))
    together = classifier.classify(pictures, 3)
    for picture, labels in zip(pictures, together, strict=True):
        [alone] = classifier.classify([picture], 3)
        assert [label.name for label in alone] == [label.name for label in labels]
        expected = pytest.approx([label.probability for label in alone], abs=1e-5)
        assert [label.probability for label in labels] == expected


def test_no_pictures_are_no_answers(classifier: Classifier) -> None:
    assert classifier.classify([], 3) == []


def test_every_class_has_a_name_of_its_own() -> None:
    assert len(class_names()) == len(set(class_names())) == 1000
    assert all(name == name.strip() and name for name in class_names())


def test_an_odd_pixel_of_padding_is_right_and_below(random_net: EfficientNetLite0) -> None:
    stem = random_net.stem
    with torch.no_grad():
        stem.weight.fill_(1.0)
        assert stem.bias is not None
        stem.bias.zero_()
        out = stem(torch.ones(1, 3, 4, 4))[0, 0]
    assert out.tolist() == [[27.0, 18.0], [18.0, 12.0]]


def test_weights_of_another_shape_or_name_are_refused(
    tmp_path: Path, random_net: EfficientNetLite0
) -> None:
    tensors = dict(random_net.state_dict())
    tensors["blocks.3.depthwise.renamed"] = tensors.pop("blocks.3.depthwise.weight")
    folder = write_model(tmp_path, tensors, "efficientnet-lite0")
    with pytest.raises(RuntimeError, match=r"blocks\.3\.depthwise\.weight"):
        Classifier(folder)


def test_a_model_of_another_type_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path, {"x": torch.ones(1)}, "llama")
    with pytest.raises(ValueError, match=r"type 'llama' instead of efficientnet-lite0"):
        Classifier(folder)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 500), (300, 2), (224, 224)])
def test_pictures_of_any_shape_are_prepared(height: int, width: int) -> None:
    x = prepare(noise(height, width, seed=5))
    assert x.shape == (3, 224, 224)
    assert -127 / 128 <= float(x.min()) <= float(x.max()) <= 1


def test_the_middle_square_is_seen_whole() -> None:
    pixels = np.zeros((224, 424, 3), np.uint8)
    pixels[:, 100:324, 0] = 255  # red in the middle
    pixels.flags.writeable = False  # as frames are that came from another process
    x = prepare(pixels)
    assert float(x[0].min()) == float(x[0].max()) == 1.0
    assert float(x[1].min()) == float(x[2].max()) == -127 / 128
