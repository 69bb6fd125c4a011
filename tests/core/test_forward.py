"""One sequence, file to file: equal to the engine's numbers, in pieces of any size."""

import dataclasses
import json
import resource
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_model import CONFIG, WIDTH, answer, checkpoint, prompt, tiny_model
from torch import Tensor

from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import BadCheckpoint, CoreError, ModelNotFound
from sensorium.core.forward import Wanted, fit_cache, forward_file, parse_layers
from sensorium.core.forward_input import BadInput
from sensorium.core.kv_cache import num_blocks_in

ENGINE = EngineConfig(threads=1, block_size=4)
IDS = prompt(3, 37)
AUDIO = 50  # in neither the prompt nor what follows it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a checkpoint whose configuration names a placeholder."""
    save_file(checkpoint(tiny_model()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"audio_token_id": AUDIO}))
    return tmp_path


def run(
    folder: Path, engine: EngineConfig = ENGINE, wanted: Wanted | None = None, **tensors: Tensor
) -> dict[str, Tensor]:
    """Write the tensors, compute, and read what was written."""
    save_file(tensors, folder / "in.safetensors")
    returned = forward_file(
        folder / "in.safetensors",
        folder / "out.safetensors",
        folder,
        models=ModelsConfig(decoder="tiny", dtype="float32"),
        engine=engine,
        wanted=wanted or Wanted(),
    )
    written = load_file(folder / "out.safetensors")
    assert written.keys() == returned.keys()
    assert all(torch.equal(written[name], returned[name]) for name in written)
    return written


def test_logits_are_those_that_serving_chooses_from(folder: Path) -> None:
    continuation = answer(IDS, max_tokens=8)
    logits = run(folder, input_ids=torch.tensor(IDS + continuation))["logits"]
    assert logits.shape == (45, CONFIG["vocab_size"])
    assert tuple(logits.argmax(-1).tolist())[len(IDS) - 1 : -1] == continuation


@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_pieces_give_what_the_whole_gives(folder: Path, chunk: int) -> None:
    wanted = Wanted(hidden="all")
    whole = run(folder, wanted=wanted, input_ids=torch.tensor(IDS))
    assert sorted(whole) == ["hidden.0", "hidden.1", "hidden.embeds", "logits"]
    pieces = run(
        folder,
        dataclasses.replace(ENGINE, max_step_tokens=chunk),
        wanted,
        input_ids=torch.tensor(IDS),
    )
    for name, expected in whole.items():
        torch.testing.assert_close(pieces[name], expected, atol=1e-4, rtol=1e-4)


def test_batch_invariant_pieces_are_the_whole_to_the_last_bit(folder: Path) -> None:
    engine = dataclasses.replace(ENGINE, batch_invariant=True)
    wanted, ids = Wanted(hidden="all"), torch.tensor(IDS)
    whole = run(folder, engine, wanted, input_ids=ids)
    pieces = run(folder, dataclasses.replace(engine, max_step_tokens=7), wanted, input_ids=ids)
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)
    plain = run(folder, wanted=wanted, input_ids=ids)
    torch.testing.assert_close(whole["logits"], plain["logits"], atol=1e-4, rtol=1e-4)
    assert not torch.equal(whole["logits"], plain["logits"])


def test_rows_stand_where_they_are_put(folder: Path) -> None:
    """Rows that are what the ids' own embeddings are change nothing; other rows change it."""
    wanted, positions = Wanted(hidden="embeds"), torch.tensor([0, 4, 5, 36])
    plain = run(folder, wanted=wanted, input_ids=torch.tensor(IDS))
    rows = plain["hidden.embeds"][positions]
    ids = torch.tensor(IDS)
    ids[positions] = AUDIO
    same = run(folder, wanted=wanted, input_ids=ids, rows=rows, row_positions=positions)
    assert torch.equal(same["hidden.embeds"], plain["hidden.embeds"])
    torch.testing.assert_close(same["logits"], plain["logits"], atol=1e-5, rtol=0)
    other = run(folder, input_ids=ids, rows=rows.flip(0), row_positions=positions)
    assert not torch.allclose(other["logits"], plain["logits"], atol=1e-2)


def test_layers_may_be_named() -> None:
    assert parse_layers("", 6) == set()
    assert parse_layers("0, 5,embeds", 6) == {-1, 0, 5}
    assert parse_layers("last", 6) == {5}
    assert parse_layers("all", 2) == {-1, 0, 1}
    for name in ("6", "-1", "first", "1,,2"):
        with pytest.raises(BadInput, match="there are 0 to 5, embeds, last and all"):
            parse_layers(name, 6)


def test_output_says_what_made_it(folder: Path) -> None:
    run(folder, input_ids=torch.tensor(IDS))
    with safe_open(folder / "out.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert metadata["model"] == "tiny"
    assert metadata["model_type"] == "llama"
    assert metadata["dtype"] == metadata["cache_dtype"] == "float32"
    assert metadata["max_step_tokens"] == "256"
    assert len(metadata["config_sha256"]) == 64
    assert metadata["torch"] == torch.__version__


def test_output_past_the_limit_is_refused_with_what_it_would_take(folder: Path) -> None:
    exactly = 37 * 4 * (CONFIG["vocab_size"] + 2 * WIDTH)
    wanted = Wanted(hidden="embeds,last", max_bytes=exactly)
    run(folder, wanted=wanted, input_ids=torch.tensor(IDS))
    (folder / "out.safetensors").unlink()
    tight = dataclasses.replace(wanted, max_bytes=exactly - 1)
    with pytest.raises(BadInput, match=f"would take {exactly:,} bytes; the limit is"):
        run(folder, wanted=tight, input_ids=torch.tensor(IDS))
    assert not (folder / "out.safetensors").exists()


def test_routers_of_a_model_without_any_are_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match="no routers"):
        run(folder, wanted=Wanted(routers=True), input_ids=torch.tensor(IDS))


def test_placeholder_of_the_configuration_needs_a_row(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"position 1 is a slot without a row.*audio_token_id"):
        run(folder, input_ids=torch.tensor([1, AUDIO]))


def test_input_is_refused_before_weights_are_read(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(BadInput, match="201 positions; the model's limit is 200"):
        run(folder, input_ids=torch.zeros(201, dtype=torch.long))
    with pytest.raises(ModelNotFound):
        run(folder, input_ids=torch.zeros(200, dtype=torch.long))


@pytest.mark.parametrize(
    ("target", "message"),
    [("in.safetensors", "replace the input"), ("none/out", "exists"), (".", "must be a file")],
)
def test_output_that_cannot_be_written_is_refused_first(
    folder: Path, target: str, message: str
) -> None:
    save_file({"input_ids": torch.tensor(IDS)}, folder / "in.safetensors")
    (folder / "model.safetensors").unlink()
    with pytest.raises(BadInput, match=message):
        forward_file(
            folder / "in.safetensors",
            folder / target,
            folder,
            models=ModelsConfig(),
            engine=ENGINE,
            wanted=Wanted(),
        )


def test_failure_leaves_the_old_output_and_no_leftovers(folder: Path) -> None:
    run(folder, input_ids=torch.tensor(IDS))
    before = (folder / "out.safetensors").read_bytes()
    listed = sorted(folder.iterdir())
    (folder / "model.safetensors").write_bytes(b"spoilt")
    with pytest.raises(BadCheckpoint):
        run(folder, input_ids=torch.tensor(IDS))
    assert (folder / "out.safetensors").read_bytes() == before
    assert sorted(folder.iterdir()) == listed


def test_full_disk_is_said_and_leaves_no_leftovers(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        with pytest.raises(CoreError, match=r"out\.safetensors can't be written"):
            run(folder, input_ids=torch.tensor(IDS))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "in.safetensors",
        "model.safetensors",
    }


@pytest.mark.parametrize("num_positions", [1, 199, 7208, 10_000])
def test_cache_holds_the_sequence_and_not_much_more(num_positions: int) -> None:
    shape = dataclasses.replace(
        tiny_model().shape, windows=(None, 64, 64, 64), max_positions=20_000
    )
    engine = fit_cache(ENGINE, shape, num_positions)
    blocks = num_blocks_in(engine.cache_mib << 20, shape, 4, torch.float32, engine.max_sequences)
    # one full group, three of a window: 64 + 257 positions and a block; 7208 fill a MiB but for one
    least = -(-num_positions // 4) + 3 * min(-(-num_positions // 4), 82)
    assert least <= blocks <= least + (1 << 20) // 512 + 1
