"""`sensorium serve`: what it refuses with a sentence, and its life from start to signal."""

import argparse
import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import stub_engine
from app_rig import LoudnessDetector
from tiny_text import tiny_prompt

from sensorium.core.child import Child, launch_process
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import ModelNotFound
from sensorium.core.worker import EngineWorker
from sensorium.gateway.app import create_app
from sensorium.gateway.cli.serve import CannotServe, listen, load_models, read_settings, serve
from sensorium.gateway.settings import Settings, SettingsError


def options(**given: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{"host": None, "port": None, "config": None, "model": None, **given}
    )


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    config = tmp_path / "x.toml"
    config.write_text('[gateway]\nport = 9000\nhost = "127.0.0.2"\n')
    settings = read_settings(options(config=config, port=9001, model="mine"))
    assert (settings.gateway.host, settings.gateway.port) == ("127.0.0.2", 9001)
    assert settings.models.decoder == "mine"


def test_bad_port_on_the_command_line_is_a_sentence(tmp_path: Path) -> None:
    config = tmp_path / "x.toml"
    config.write_text("")
    with pytest.raises(SettingsError, match="at most 65535"):
        read_settings(options(config=config, port=70_000))


def test_taken_port_is_a_sentence() -> None:
    with listen("127.0.0.1", 0, None) as first:
        port = first.getsockname()[1]
        with pytest.raises(CannotServe, match=f"port {port} on 127.0.0.1 is taken"):
            listen("127.0.0.1", port, None)


def test_other_machines_are_let_in_with_a_key_only() -> None:
    with pytest.raises(CannotServe, match="SENSORIUM_API_KEY"):
        listen("0.0.0.0", 0, None)
    listen("0.0.0.0", 0, "s3cret").close()
    listen("localhost", 0, None).close()


def test_address_that_is_not_ours_is_a_sentence() -> None:
    with pytest.raises(CannotServe, match=r"can't listen on 192\.0\.2\.1 port 9"):
        listen("192.0.2.1", 9, "s3cret")


def test_missing_weights_name_the_command_that_fetches_them(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="sensorium pull"):
        load_models(ModelsConfig(cache_dir=str(tmp_path)))


def test_command_ends_with_one_sentence_and_status_1(tmp_path: Path) -> None:
    config = tmp_path / "x.toml"
    config.write_text(f'[gateway]\nport = 0\n[models]\ncache_dir = "{tmp_path}"\n')
    ended = subprocess.run(
        [sys.executable, "-m", "sensorium.gateway", "serve", "--config", config],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("sensorium serve: ")
    assert "Traceback" not in ended.stderr
    assert "sensorium pull" in ended.stderr


async def launch_stub(sock: socket.socket) -> Child:
    return await launch_process(sock, (sys.executable, stub_engine.__file__))


async def run(decoder: str, listener: socket.socket) -> None:
    """Serve with an engine process that has no weights."""
    models = ModelsConfig(decoder=decoder)
    worker = EngineWorker(models, EngineConfig(), launch=launch_stub)
    app = create_app(
        engine=worker,
        prompt=tiny_prompt(),
        detector=LoudnessDetector(),
        settings=Settings(),
        api_key=None,
    )
    async with asyncio.timeout(30):
        with listener:
            await serve(worker, app, listener)


async def test_serves_until_a_signal(capsys: pytest.CaptureFixture[str]) -> None:
    listener = listen("127.0.0.1", 0, None)
    host, port = listener.getsockname()
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(run("stub", listener))
        reader, writer = await asyncio.open_connection(host, port)
        status = b""
        while b" 200 " not in status:
            writer.write(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status = await reader.readline()
            while line := (await reader.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            await reader.readexactly(length)
        signal.raise_signal(signal.SIGINT)
        writer.close()
        await serving
    assert f"http://{host}:{port}" in capsys.readouterr().out


async def test_engine_that_cannot_be_loaded_ends_the_server() -> None:
    with pytest.raises(ModelNotFound):
        await run("missing", listen("127.0.0.1", 0, None))
