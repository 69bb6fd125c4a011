"""`sensorium serve`: settings → engine → app → server; the one place that wires them together."""

import argparse
import asyncio
import errno
import logging
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

from starlette.applications import Starlette

from sensorium.core.config import ModelsConfig
from sensorium.core.errors import CoreError
from sensorium.core.sources import as_typed, resolve
from sensorium.core.text.prompt import Prompt, load_prompt
from sensorium.core.worker import MAX_OUTGOING_BYTES, EngineWorker
from sensorium.encoders.vad import SpeechDetector
from sensorium.gateway.admission import is_loopback
from sensorium.gateway.app import create_app
from sensorium.gateway.cli.server import GatewayServer
from sensorium.gateway.settings import Settings, SettingsError, load_settings, read_api_key

ENGINE_STOP_S = 2.0
BACKLOG = 2048


class CannotServe(Exception):
    """The server can't start; the message is one sentence for the terminal."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "serve", help="run the gateway", description="Run the gateway. Never downloads anything."
    )
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 8000)")
    parser.add_argument("--config", type=Path, help="settings (default: ./sensorium.toml if any)")
    parser.add_argument("--model", help="decoder to run, a known name or a directory")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal; returns the exit status, 1 with a sentence if it can't start."""
    try:
        settings = read_settings(options)
        logging.basicConfig(
            level=settings.gateway.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        key = read_api_key(os.environ)
        listener = listen(settings.gateway.host, settings.gateway.port, key)
        with listener:
            prompt, detector = load_models(settings.models)
            media_bytes = (settings.session.max_media_mib + 16) << 20
            engine = EngineWorker(
                settings.models,
                settings.engine,
                max_outgoing_bytes=max(MAX_OUTGOING_BYTES, media_bytes),
            )
            app = create_app(
                engine=engine, prompt=prompt, detector=detector, settings=settings, api_key=key
            )
            asyncio.run(serve(engine, app, listener))
    except (CannotServe, SettingsError, CoreError) as error:
        print(f"sensorium serve: {error}", file=sys.stderr)
        return 1
    return 0


def read_settings(options: argparse.Namespace) -> Settings:
    """Return the settings file with the command line's words on top; raises SettingsError."""
    settings = load_settings(options.config)
    given = {"host": options.host, "port": options.port}
    changes = {name: value for name, value in given.items() if value is not None}
    try:
        gateway = replace(settings.gateway, **changes)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    model = as_typed(options.model) if options.model else settings.models.decoder
    models = replace(settings.models, decoder=model)
    return replace(settings, gateway=gateway, models=models)


def listen(host: str, port: int, key: str | None) -> socket.socket:
    """Return a listening socket; raises CannotServe."""
    if key is None and not is_loopback(host):
        raise CannotServe(
            f"listening on {host} lets other machines in; set SENSORIUM_API_KEY to a secret that "
            "they have to present, or use --host 127.0.0.1"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotServe(
                f"port {port} on {host} is taken, perhaps by another sensorium serve; "
                f"stop that or choose one with --port"
            ) from None
        raise CannotServe(f"can't listen on {host} port {port}: {error.strerror}") from None


def load_models(models: ModelsConfig) -> tuple[Prompt, SpeechDetector]:
    """Return what this process needs of the models; raises CoreError, which names the remedy."""
    cache_dir = Path(models.cache_dir).expanduser() if models.cache_dir else None
    prompt = load_prompt(resolve(models.decoder, cache_dir))
    return prompt, SpeechDetector(resolve(models.vad, cache_dir))


async def serve(engine: EngineWorker, app: Starlette, listener: socket.socket) -> None:
    """Run engine and server until a signal; raises CoreError if the engine can't run at all."""
    host, port = listener.getsockname()[:2]
    server = GatewayServer(app, host=host, port=port)
    url_host = f"[{host}]" if ":" in host else host
    print(f"Sensorium listens on http://{url_host}:{port}", flush=True)
    failures: list[CoreError] = []

    async def supervise() -> None:
        try:
            await engine.run()
        except CoreError as error:
            failures.append(error)
        finally:
            server.should_exit = True

    async with asyncio.TaskGroup() as group:
        group.create_task(supervise())
        await server.serve(sockets=[listener])
        await engine.stop(ENGINE_STOP_S)
    for error in failures:
        raise error
