"""`sensorium plan`: what serving a model would take, group by group, from its config.json alone."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sensorium.core import sources
from sensorium.core.config import ModelsConfig
from sensorium.core.errors import CoreError
from sensorium.core.plan import BUILT_IN, ITEM_BYTES, Demand, Plan, make_plan
from sensorium.gateway.settings import SettingsError, load_settings


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "plan",
        help="say what a model would take: weights and cache, per GPU and in all",
        description="Print the memory that weights and cache take, by formula; loads nothing.",
        epilog="Block size, window slack and step come from the settings' [engine] section.",
    )
    parser.add_argument(
        "--model",
        help="a directory, a pulled model or muse-spark-open (default: the configured decoder)",
    )
    parser.add_argument("--context", type=int, help="positions a session (default: the most)")
    parser.add_argument("--sessions", type=int, default=1, help="sessions at a time (default: 1)")
    parser.add_argument("--tp", type=int, default=1, help="GPUs that share the model (default: 1)")
    dtypes = [name for name in ITEM_BYTES if name != "float8"]
    parser.add_argument("--weights-dtype", choices=dtypes, default="bfloat16")
    parser.add_argument("--cache-dtype", choices=list(ITEM_BYTES), default="bfloat16")
    parser.add_argument("--json", action="store_true", help="print bytes as JSON")
    parser.add_argument("--config", type=Path, help="settings file (default: ./sensorium.toml)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the plan; returns 1 if what is asked for can't be had, 2 for bad settings."""
    try:
        settings = load_settings(args.config)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    name = sources.as_typed(args.model) if args.model else settings.models.decoder
    try:
        plan = make_plan(
            _read_config(name, settings.models),
            Demand(
                context=args.context,
                sessions=args.sessions,
                tp=args.tp,
                weights_dtype=args.weights_dtype,
                cache_dtype=args.cache_dtype,
            ),
            settings.engine,
        )
    except CoreError as error:
        print(f"✗ {name}: {error}", file=sys.stderr)
        return 1
    print(as_json(plan) if args.json else "\n".join(as_text(name, plan)))
    return 0


def _read_config(name: str, models: ModelsConfig) -> Mapping[str, Any]:
    """Return the parsed config.json. Raises ModelNotFound and BadCheckpoint."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    cache_dir = Path(models.cache_dir).expanduser() if models.cache_dir else None
    return sources.read_config(sources.resolve(name, cache_dir))


def as_json(plan: Plan) -> str:
    """Write every number of a plan, in bytes."""
    totals = {
        "weight_bytes_per_gpu": plan.weight_bytes_per_gpu,
        "cache_bytes_per_gpu": plan.cache_bytes_per_gpu,
        "bytes_per_gpu": plan.bytes_per_gpu,
        "total_bytes": plan.bytes_per_gpu * plan.demand.tp,
    }
    return json.dumps(dataclasses.asdict(plan) | totals, indent=2)


def as_text(name: str, plan: Plan) -> Iterator[str]:
    """Write a plan as two tables; yields lines."""
    demand = plan.demand
    yield (
        f"{name}: {demand.sessions:,} × {plan.context:,} positions "
        f"on {demand.tp} GPU{'s' * (demand.tp > 1)}"
    )
    yield ""
    yield _row("weights", "parameters", "type", "per GPU", "in all") + "   divided by"
    for share in plan.weights:
        per_gpu, total = size(share.bytes_per_gpu), size(share.total_bytes)
        line = _row(share.name, f"{share.num_parameters:,}", share.dtype, per_gpu, total)
        yield f"{line}   {share.split_by or '– (whole on each)'}"
    num_parameters = f"{sum(share.num_parameters for share in plan.weights):,}"
    yield _row("all weights", num_parameters, "", *_both(plan, plan.weight_bytes_per_gpu))
    yield ""
    yield _row(f"cache, {demand.cache_dtype}", "positions", "blocks", "per GPU", "in all")
    for group in plan.cache:
        kind = "full" if group.window is None else f"window {group.window:,}"
        both = _both(plan, group.vector_bytes_per_gpu)
        title = f"{group.num_layers} × {kind}"
        yield _row(title, f"{group.positions:,}", f"{group.num_blocks:,}", *both)
    extras = {
        "scales": sum(group.scale_bytes_per_gpu for group in plan.cache),
        "padding of smaller groups": sum(group.padding_bytes_per_gpu for group in plan.cache),
        "null block": plan.null_block_bytes_per_gpu,
    }
    for title, num_bytes in extras.items():
        if num_bytes:
            yield _row(title, "", "", *_both(plan, num_bytes))
    yield _row("all cache", "", "", *_both(plan, plan.cache_bytes_per_gpu))
    yield ""
    yield _row("weights and cache", "", "", *_both(plan, plan.bytes_per_gpu))
    yield "Positions and blocks are one session's; what a step computes with comes on top."
    if any(group.window is not None for group in plan.cache):
        full = size(plan.all_full_vector_bytes)
        yield f"If all layers were full, keys and values would take {full}."
    yield from plan.notes


def size(num_bytes: int) -> str:
    """Write bytes in the binary unit that suits them: 34359738368 → "32.00 GiB"."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if num_bytes >= 1 << shift:
            return f"{num_bytes / (1 << shift):,.2f} {unit}"
    return f"{num_bytes} B"


def _both(plan: Plan, per_gpu: int) -> tuple[str, str]:
    return size(per_gpu), size(per_gpu * plan.demand.tp)


def _row(*cells: str) -> str:
    return f"{cells[0]:26}" + "".join(f"{cell:>17}" for cell in cells[1:])
