"""`sensorium forward`: ids and embedding rows in, logits and hidden states out, file to file."""

import argparse
import dataclasses
import sys
from pathlib import Path

from sensorium.core.errors import CoreError
from sensorium.core.sources import as_typed, resolve
from sensorium.gateway.settings import Settings, SettingsError, load_settings


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "forward",
        help="run one sequence through the decoder, on the path of serving, and save its logits",
        description="IN holds input_ids [n], and rows [m, D] with row_positions [m] for slots. "
        "OUT gets logits [n, V] and what is asked for; both are safetensors files.",
    )
    parser.add_argument("source", type=Path, metavar="IN", help="file with input_ids")
    parser.add_argument("target", type=Path, metavar="OUT", help="file to write")
    parser.add_argument("--model", metavar="DIR|NAME", help="decoder (default: as configured)")
    parser.add_argument(
        "--hidden",
        default="",
        metavar="LAYERS",
        help="save the residual stream after these layers as hidden.N: "
        "0,5,last; embeds is what layer 0 is given; or all",
    )
    parser.add_argument(
        "--router", action="store_true", help="save router.logits.N and router.experts.N"
    )
    parser.add_argument(
        "--dtype",
        choices=("auto", "bfloat16", "float16", "float32"),
        help="what is computed in (default: as configured; auto is the faster one here)",
    )
    parser.add_argument(
        "--cache-dtype",
        choices=("auto", "bfloat16", "float16", "float32", "float8"),
        help="what keys and values are kept in",
    )
    parser.add_argument(
        "--weights",
        choices=("auto", "same", "int8", "int4"),
        help="how matrices are kept (default: as configured)",
    )
    parser.add_argument("--chunk", type=_count, metavar="N", help="positions per step")
    parser.add_argument(
        "--batch-invariant",
        action="store_true",
        help="compute position by position, as serving does with this setting",
    )
    parser.add_argument(
        "--max-output-mib", type=_count, default=1024, metavar="N", help="refuse to write more"
    )
    parser.add_argument("--config", type=Path, help="settings file (default: ./sensorium.toml)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compute and write; returns 1 if that can't be done."""
    try:
        settings = _configured(load_settings(args.config), args)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    # Here, so that the other commands start without torch.
    from sensorium.core.forward import Wanted, forward_file

    wanted = Wanted(
        hidden=args.hidden, routers=args.router, max_bytes=args.max_output_mib * (1 << 20)
    )
    models = settings.models
    cache_dir = Path(models.cache_dir).expanduser() if models.cache_dir else None
    try:
        tensors = forward_file(
            args.source,
            args.target,
            resolve(models.decoder, cache_dir),
            models=models,
            engine=settings.engine,
            wanted=wanted,
        )
    except (CoreError, OSError) as error:
        print(f"✗ {error}", file=sys.stderr)
        return 1
    for name, tensor in tensors.items():
        print(f"{name:20} {list(tensor.shape)}")
    print(f"✓ {models.decoder}: {sum(t.nbytes for t in tensors.values()):,} bytes in {args.target}")
    return 0


def _configured(settings: Settings, args: argparse.Namespace) -> Settings:
    """Return the settings with the command's own in place."""
    models, engine = settings.models, settings.engine
    return dataclasses.replace(
        settings,
        models=dataclasses.replace(
            models,
            decoder=as_typed(args.model) if args.model else models.decoder,
            dtype=args.dtype or models.dtype,
            weights=args.weights or models.weights,
        ),
        engine=dataclasses.replace(
            engine,
            cache_dtype=args.cache_dtype or engine.cache_dtype,
            max_step_tokens=args.chunk or engine.max_step_tokens,
            batch_invariant=args.batch_invariant or engine.batch_invariant,
        ),
    )


def _count(text: str) -> int:
    """Read a whole number from 1 on."""
    if (number := int(text)) < 1:
        raise ValueError
    return number
