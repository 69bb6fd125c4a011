"""`sensorium forward`: one sequence through the model, file to file, on the path of serving.

The same scheduler, batches, paged cache and runner as the engine's, so that its numbers can be
compared with other implementations, position by position.
"""

import hashlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from sensorium.core.api import OpenSpan, SamplingParams, SequenceId, SpanId
from sensorium.core.batch import build_batch
from sensorium.core.block_pool import BlockPool, cdiv
from sensorium.core.block_table import BlockTable
from sensorium.core.capture import EMBEDS, MAX_BYTES, Capture
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import CoreError
from sensorium.core.forward_input import BadInput, ForwardInput, read_input
from sensorium.core.kv_cache import block_bytes
from sensorium.core.layer_groups import most_blocks
from sensorium.core.models import family
from sensorium.core.models.base import DecoderShape
from sensorium.core.runner import DTYPES, Runner, load_runner
from sensorium.core.scheduler import LEAST_SLACK, Scheduler
from sensorium.core.sequence import Sequence
from sensorium.core.singly import run_singly
from sensorium.core.sources import read_config

PLACEHOLDERS = ("image_token_id", "video_token_id", "audio_token_id")
"""Keys of config.json whose ids stand where an embedding row goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the output holds beside `logits` [n, V].

    `hidden` lists layers whose residual stream is wanted: "0,5,last", "embeds" for what the first
    layer is given, "all", or "" for none. `routers`: the logits and choices of every router.
    """

    hidden: str = ""
    routers: bool = False
    max_bytes: int = MAX_BYTES


def forward_file(
    source: Path,
    target: Path,
    model_dir: Path,
    *,
    models: ModelsConfig,
    engine: EngineConfig,
    wanted: Wanted,
) -> dict[str, Tensor]:
    """Compute the sequence in `source` with the model in `model_dir`; write and return the result.

    Everything that can be is checked before weights are read. The cache is as large as the sequence
    needs, whatever `engine` says. Raises BadInput, and CoreError for the model's part.
    """
    config = read_config(model_dir)
    with torch.device("meta"):
        shape = family(str(config.get("model_type")))(config).shape
    placeholders = {name: config[name] for name in PLACEHOLDERS if type(config.get(name)) is int}
    given = read_input(source, shape, placeholders)
    layers = parse_layers(wanted.hidden, shape.num_layers)
    _check_bytes(_least_bytes(len(given.token_ids), shape, layers), wanted.max_bytes)
    _check_target(target, source)
    engine = fit_cache(engine, shape, len(given.token_ids))
    runner = load_runner(model_dir, models, engine)
    tensors = forward(runner, given, engine, wanted)
    _write(target, tensors, _describe(config, model_dir, runner, models, engine))
    return tensors


def forward(
    runner: Runner, given: ForwardInput, engine: EngineConfig, wanted: Wanted
) -> dict[str, Tensor]:
    """Run one sequence in steps of `engine.max_step_tokens`, over an empty cache.

    Returns `logits` [n, V] in float32 and what `Capture.tensors` names, all on the CPU. Raises
    BadInput if the result would be too large or the model has no routers to observe.
    """
    num_positions, block_size = len(given.token_ids), engine.block_size
    layers = parse_layers(wanted.hidden, runner.shape.num_layers)
    _check_bytes(_least_bytes(num_positions, runner.shape, layers), wanted.max_bytes)
    capture = Capture(layers=layers, routers=wanted.routers, max_bytes=wanted.max_bytes)
    scheduler = Scheduler(
        BlockPool(runner.cache.num_blocks),
        block_size=block_size,
        max_step_tokens=engine.max_step_tokens,
        window_slack=engine.window_slack,
    )
    run = partial(runner.run, capture=capture)
    if engine.batch_invariant:
        run = partial(run_singly, run)
    sequence = _sequence(runner, given, block_size)
    logits = torch.empty(num_positions, runner.shape.vocab_size)  # [n, V]
    while sequence.num_due:
        scheduled = scheduler.schedule([sequence], now=0.0)
        if not scheduled:
            raise CoreError(
                f"{runner.cache.num_blocks} cache blocks don't hold {num_positions} positions"
            )
        runner.cache.clear(scheduler.new_blocks)
        batch = build_batch(
            scheduled,
            block_size=block_size,
            dtype=runner.dtype,
            device=runner.cache.device,
            sample_all=True,
        )
        begin, count = sequence.num_computed, scheduled[0].count
        logits[begin : begin + count] = run(batch)
        scheduler.advance(sequence, count)
        # Every position takes the same, so the first step tells what all will.
        captured = capture.num_bytes * num_positions // sequence.num_computed
        _check_bytes(logits.nbytes + captured, wanted.max_bytes)
    tensors = {"logits": logits, **capture.tensors()}
    if wanted.routers and not any(name.startswith("router.") for name in tensors):
        raise BadInput("the model has no routers to observe")
    return tensors


def parse_layers(names: str, num_layers: int) -> Collection[int]:
    """Turn "0,5,last" into layer indices; see `Wanted.hidden`. Raises BadInput."""
    known = {"embeds": EMBEDS, "last": num_layers - 1}
    known |= {str(layer): layer for layer in range(num_layers)}
    wanted = [name.strip() for name in names.split(",")] if names else []
    for name in wanted:
        if name not in known and name != "all":
            raise BadInput(
                f"no layer {name!r}; there are 0 to {num_layers - 1}, embeds, last and all"
            )
    return set(known.values()) if "all" in wanted else {known[name] for name in wanted}


def fit_cache(engine: EngineConfig, shape: DecoderShape, num_positions: int) -> EngineConfig:
    """Return settings whose cache holds one sequence of `num_positions`, and not much more."""
    kept = LEAST_SLACK + engine.max_step_tokens
    num_blocks = 1 + most_blocks(shape.windows, num_positions, engine.block_size, kept)
    largest = DTYPES.get(engine.cache_dtype, torch.float32)  # "auto" is settled with the weights
    num_bytes = num_blocks * block_bytes(shape, engine.block_size, largest)
    return replace(engine, cache_mib=cdiv(num_bytes, 1 << 20), max_sequences=1)


def _sequence(runner: Runner, given: ForwardInput, block_size: int) -> Sequence:
    """Fill a sequence the way that an encoder would: one media span of ids and rows."""
    sequence = Sequence(
        SequenceId(1),
        tables=[BlockTable(group.window, block_size) for group in runner.cache.groups],
        max_positions=runner.shape.max_positions,
        order=1,
    )
    span_id = SpanId(1)
    sequence.put(OpenSpan(sequence_id=sequence.sequence_id, span_id=span_id))
    for content in given.contents():
        sequence.extend(span_id, content)
    sequence.finish(span_id)
    sequence.settle(_generate_nothing)
    return sequence


def _generate_nothing(sampling: SamplingParams) -> NoReturn:
    raise AssertionError("there is nothing but a media span")


def _least_bytes(num_positions: int, shape: DecoderShape, layers: Collection[int]) -> int:
    """How much the output holds at least: all but what routers say."""
    return num_positions * torch.float32.itemsize * (shape.vocab_size + len(layers) * shape.width)


def _check_bytes(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise BadInput(
            f"the output would take {num_bytes:,} bytes; the limit is {max_bytes:,}: "
            "give fewer positions, ask for fewer layers, or raise the limit"
        )


def _check_target(target: Path, source: Path) -> None:
    """Refuse early what couldn't be written in the end."""
    if target.is_dir() or not target.parent.is_dir():
        raise BadInput(f"{target} can't be written: it must be a file in a folder that exists")
    if target.resolve() == source.resolve():
        raise BadInput(f"the output would replace the input, {source}")


def _describe(
    config: Mapping[str, Any],
    model_dir: Path,
    runner: Runner,
    models: ModelsConfig,
    engine: EngineConfig,
) -> dict[str, str]:
    """Return what it takes to compute the same again."""
    digest = hashlib.sha256((model_dir / "config.json").read_bytes()).hexdigest()
    return {
        "format": "pt",
        "model": models.decoder,
        "model_type": str(config["model_type"]),
        "config_sha256": digest,
        "dtype": str(runner.dtype).removeprefix("torch."),
        "weights": models.weights,
        "residual_dtype": models.residual_dtype,
        "cache_dtype": str(runner.cache.dtype).removeprefix("torch."),
        "max_step_tokens": str(engine.max_step_tokens),
        "batch_invariant": str(engine.batch_invariant).lower(),
        "device": runner.cache.device.type,
        "sensorium": version("sensorium"),
        "torch": torch.__version__,
    }


def _write(target: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write beside the target and rename, so that it is whole or as it was."""
    unfinished = target.with_name(f".forward-{os.getpid()}.tmp")
    try:
        save_file(tensors, unfinished, metadata)
        unfinished.replace(target)
    except (OSError, SafetensorError) as error:
        raise CoreError(f"{target} can't be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
