"""`forward` on tiny Muse checkpoints: transformers' numbers, pictures, video and sound included."""

from pathlib import Path

import pytest
import torch
from muse_checkpoint import cached_tiny_muse, golden
from safetensors.torch import save_file
from torch import Tensor

from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.forward import Wanted, forward_file
from sensorium.core.forward_input import BadInput

LAYERS = range(6)


def run(folder: Path, *, chunk: int = 256, wanted: Wanted, **inputs: Tensor) -> dict[str, Tensor]:
    save_file(inputs, folder / "in.safetensors")
    return forward_file(
        folder / "in.safetensors",
        folder / "out.safetensors",
        cached_tiny_muse(),
        models=ModelsConfig(dtype="float32"),
        engine=EngineConfig(threads=1, block_size=4, max_step_tokens=chunk),
        wanted=wanted,
    )


def given() -> dict[str, Tensor]:
    expected = golden(cached_tiny_muse())
    return {name: expected[name] for name in ("input_ids", "rows", "row_positions")}


@pytest.mark.parametrize("chunk", [256, 7])
def test_golden_prompt_gives_golden_numbers(tmp_path: Path, chunk: int) -> None:
    """Tolerances are those of two implementations in float32; 7 cuts windows and pictures."""
    found = run(tmp_path, chunk=chunk, wanted=Wanted(hidden="all", routers=True), **given())
    expected = golden(cached_tiny_muse())
    assert expected["margin"] > 1e-4  # else rounding may choose other experts
    names = {"logits", "hidden.embeds"} | {
        f"{kind}.{i}" for kind in ("hidden", "router.logits", "router.experts") for i in LAYERS
    }
    assert found.keys() == names
    assert torch.equal(found["hidden.embeds"], expected["text.embeds"])
    for i in LAYERS:
        for ours, theirs in (("hidden", "layer"), ("router.logits", "router")):
            torch.testing.assert_close(
                found[f"{ours}.{i}"], expected[f"text.{theirs}.{i}"], atol=2e-5 * (i + 1), rtol=0.0
            )
        assert found[f"router.experts.{i}"].shape == (132, 3)
    torch.testing.assert_close(found["logits"], expected["text.logits"], atol=1e-3, rtol=0.0)


def test_every_media_token_needs_a_row(tmp_path: Path) -> None:
    """A picture's, a video's and a sound's: transformers would embed the placeholder itself."""
    inputs = given()
    ids, positions = inputs["input_ids"], inputs["row_positions"]
    for token_id in torch.unique(ids[positions]):
        kept = ids[positions] != token_id
        with pytest.raises(BadInput, match=f"slot without a row: its id {token_id} is the"):
            run(
                tmp_path,
                wanted=Wanted(),
                input_ids=ids,
                rows=inputs["rows"][kept],
                row_positions=positions[kept],
            )


def test_limit_counts_what_routers_say(tmp_path: Path) -> None:
    """Known after the first step, for all steps: 6 routers of 12 scores and 3 choices."""
    num_bytes = 132 * (4 * 384 + 6 * (4 * 12 + 8 * 3))
    wanted = Wanted(routers=True, max_bytes=num_bytes - 1)
    with pytest.raises(BadInput, match=f"would take {num_bytes:,} bytes"):
        run(tmp_path, chunk=16, wanted=wanted, **given())
