import json
from typing import Any, Literal

import pytest
import torch
from muse_checkpoint import cached_tiny_muse
from muse_rig import CPU, load_muse, observe
from torch import Tensor

from sensorium.core.checkpoint import Checkpoint
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.models import family
from sensorium.core.models.muse_spark import MuseSpark
from sensorium.core.runner import load_runner
from sensorium.core.weights import load_weights

WINDOW = 8


def _config(**text: Any) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((cached_tiny_muse() / "config.json").read_bytes())
    config["text_config"] |= text
    return config


def _random_model(config: dict[str, Any]) -> MuseSpark:
    model = MuseSpark(config)
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return model


def _text(token_ids: list[int]) -> dict[str, Tensor]:
    nothing = torch.empty(0, dtype=torch.long)
    ids = torch.tensor(token_ids)
    return {"input_ids": ids, "rows": torch.empty(0, 64), "row_positions": nothing}


@pytest.mark.parametrize("dense_layer", [None, 2])
def test_decoder_and_encoders_name_every_tensor_of_the_checkpoint(dense_layer: int | None) -> None:
    folder = cached_tiny_muse(dense_layer=dense_layer)
    model = MuseSpark(json.loads((folder / "config.json").read_bytes()))
    names = model.weight_names()
    assert {name for name, _ in model.named_parameters()} == set(names)
    decoder = {part for parts in names.values() for part in parts}
    assert not decoder & model.other_weight_names()
    assert decoder | model.other_weight_names() == set(Checkpoint(folder).names)


def test_family_is_found_by_its_model_type() -> None:
    assert family("muse_spark") is MuseSpark


def test_router_and_gates_are_loaded_in_float32_and_the_rest_as_asked() -> None:
    folder = cached_tiny_muse()
    model = MuseSpark(_config())
    others = model.other_weight_names()
    names = model.weight_names()
    load_weights(model, names, folder, dtype=torch.bfloat16, device=CPU, others=others)
    in_float32 = {name for name, p in model.named_parameters() if p.dtype == torch.float32}
    of_layer = {"attention_residual.gate", "feed_residual.gate"}
    of_layer |= {"feed.router.weight", "feed.router.bias"}
    assert in_float32 == {f"layers.{i}.{name}" for i in range(6) for name in of_layer}


def test_text_is_embedded_with_unit_root_mean_square() -> None:
    model = _random_model(_config())
    rows = model.embed(torch.tensor([5, 2]))
    expected = model.embedding[[5, 2]]
    expected = expected / (expected.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(rows, expected)


@pytest.mark.parametrize(
    ("residual_dtype", "expected"), [(torch.float32, torch.float32), (None, torch.bfloat16)]
)
def test_stream_has_its_own_type_and_logits_are_float32(
    residual_dtype: torch.dtype | None, expected: torch.dtype
) -> None:
    decoder = load_muse(cached_tiny_muse(), dtype=torch.bfloat16, residual_dtype=residual_dtype)
    assert decoder.embed(torch.tensor([1])).dtype == expected
    logits = decoder.logits(torch.ones(1, 64, dtype=torch.bfloat16))
    assert logits.dtype == torch.float32


def test_logits_stay_below_the_cap() -> None:
    logits = _random_model(_config()).logits(1e3 * torch.ones(2, 64))
    assert logits.abs().max() == 20


@pytest.mark.parametrize(("setting", "expected"), [("float32", torch.float32), ("same", None)])
def test_settings_decide_the_type_of_the_stream(
    setting: Literal["float32", "same"], expected: torch.dtype | None
) -> None:
    models = ModelsConfig(dtype="bfloat16", residual_dtype=setting)
    runner = load_runner(cached_tiny_muse(), models, EngineConfig(threads=1, cache_mib=1))
    decoder = runner._decoder
    assert isinstance(decoder, MuseSpark)
    assert decoder.residual_dtype == expected


@pytest.mark.parametrize("max_step_tokens", [64, 5, 1])
def test_window_layer_sees_exactly_its_window(max_step_tokens: int) -> None:
    one_layer = _config(
        num_hidden_layers=1,
        layer_types=["sliding_attention"],
        layer_rope_theta=[500_000.0],
        mlp_layer_types=["dense"],
    )
    model = _random_model(one_layer)
    ids = list(range(20, 32))
    logits = observe(model, _text(ids), max_step_tokens=max_step_tokens).logits
    changed = observe(model, _text([7, *ids[1:]]), max_step_tokens=max_step_tokens).logits
    same = (logits - changed)[: len(ids)].abs().amax(-1) < 1e-6
    assert same.tolist() == [p >= WINDOW for p in range(len(ids))]


def test_layer_without_angles_does_not_see_positions() -> None:
    one_layer = _config(
        num_hidden_layers=1,
        layer_types=["full_attention"],
        layer_rope_theta=[0],
        mlp_layer_types=["dense"],
    )
    model = _random_model(one_layer)
    there = observe(model, _text([3, 4, 5, 6])).logits[3]
    back = observe(model, _text([5, 3, 4, 6])).logits[3]
    torch.testing.assert_close(there, back, atol=1e-4, rtol=0)
    one_layer["text_config"]["layer_rope_theta"] = [500_000.0]
    rotated = _random_model(one_layer)
    there = observe(rotated, _text([3, 4, 5, 6])).logits[3]
    back = observe(rotated, _text([5, 3, 4, 6])).logits[3]
    assert (there - back).abs().max() > 1e-2
