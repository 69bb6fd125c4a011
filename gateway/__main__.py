"""`python -m sensorium.gateway` and the `sensorium` command: finds the subcommands in `cli/`."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from sensorium.gateway import cli

INTERRUPTED = 130
"""128 + SIGINT, as shells say it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit status."""
    options = build_parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; each module of `cli/` that has `add_parser` is a subcommand."""
    parser = argparse.ArgumentParser(
        prog="sensorium", description="A streaming gateway that gives a language model ears."
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for found in sorted(iter_modules(cli.__path__), key=lambda module: module.name):
        module = import_module(f"{cli.__name__}.{found.name}")
        if hasattr(module, "add_parser"):
            module.add_parser(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
