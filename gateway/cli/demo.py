"""`sensorium demo`: what `make run` shows: a server, a spoken question, its answer, the page."""

import argparse
import asyncio
import sys

from sensorium.encoders.media import MediaError
from sensorium.gateway.cli.own_server import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    CommandError,
    OwnServer,
    is_port_taken,
)
from sensorium.gateway.cli.talk import talk


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "demo", help="start a server, ask it a spoken question and leave it running"
    )
    parser.add_argument("file", metavar="FILE", help="a recording that asks something")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT)
    parser.add_argument("--once", action="store_true", help="stop after the answer")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve, ask, then wait for Ctrl-C; returns 1 if any of it failed."""
    try:
        return _demonstrate(args.file, args.port, once=args.once)
    except KeyboardInterrupt:
        print("\nstopped")
        return 0
    except (CommandError, MediaError) as error:
        print(error, file=sys.stderr)
        return 1


def _demonstrate(path: str, port: int, *, once: bool) -> int:
    if is_port_taken(DEFAULT_HOST, port):
        raise CommandError(
            f"port {port} of {DEFAULT_HOST} is taken: stop what listens there, or choose another "
            "(make run PORT=8001)"
        )
    with OwnServer(port) as server:
        print(f"playing {path} to {server.base_url}", flush=True)
        status = asyncio.run(talk(path, url=f"ws://{DEFAULT_HOST}:{port}/v1/realtime"))
        if once or status != 0:
            return status
        print(f"\nThe page: {server.base_url}/   (Ctrl-C stops the server)", flush=True)
        server.wait()
    return 0
