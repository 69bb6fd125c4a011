"""`sensorium pull`: brings the weights of models into the cache folder."""

import argparse
import sys
from pathlib import Path

from sensorium.core import fetch, sources
from sensorium.core.errors import CoreError
from sensorium.gateway.cli.progress import ProgressBar
from sensorium.gateway.settings import SettingsError, load_settings


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "pull",
        help="fetch the weights of the configured models, or of those named",
        description="Fetch weights into the cache folder; what is there already is kept.",
        epilog="Known models: " + ", ".join(sources.pins()) + "; or hf:OWNER/NAME@REVISION.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model (default: as configured)")
    parser.add_argument("--force", action="store_true", help="fetch again what is there")
    parser.add_argument("--verify", action="store_true", help="only check what is there, all bytes")
    parser.add_argument("--config", type=Path, help="settings file (default: ./sensorium.toml)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Pull or verify each model; returns 1 if one failed."""
    try:
        models = load_settings(args.config).models
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    cache_dir = Path(models.cache_dir).expanduser() if models.cache_dir else None
    status = 0
    for name in args.names or [name for _, name in models.by_role()]:
        try:
            print(_one(name, cache_dir, force=args.force, verify=args.verify), flush=True)
        except (CoreError, OSError) as error:
            print(f"✗ {name}: {error}", file=sys.stderr)
            status = 1
    return status


def _one(name: str, cache_dir: Path | None, *, force: bool, verify: bool) -> str:
    """Handle one model; returns the line that says how it ended."""
    if verify:
        directory = sources.resolve(name, cache_dir)
        if not sources.is_path(name):
            sources.check(name, cache_dir, full=True)
        return f"✓ {name} is intact in {directory}"
    with ProgressBar(name) as bar:
        directory = fetch.pull(name, cache_dir, bar.update, force=force)
    return f"✓ {name} is in {directory}"
