"""`sensorium transcribe`: a file to text or subtitles, by a running server or one of our own."""

import argparse
import sys
from pathlib import Path

import httpx

from sensorium.gateway.cli.own_server import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    CommandError,
    OwnServer,
    authorization,
    free_port,
    is_ready,
)
from sensorium.gateway.cli.progress import ProgressBar


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "transcribe",
        help="write down what is said in a file",
        description="Use the server of --url, else one on this machine, else start one for this.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="sound in any common format")
    parser.add_argument("--format", choices=("text", "json", "srt", "vtt"), default="text")
    parser.add_argument("--language", help="ISO 639-1 code (default: found out)")
    parser.add_argument("--url", help="a running server, such as http://127.0.0.1:8000")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the transcript; returns 1 if there is none."""
    try:
        print(transcribe(args.file, args.format, language=args.language, url=args.url).rstrip())
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def transcribe(path: Path, response_format: str, *, language: str | None, url: str | None) -> str:
    """Return the transcript of a file in the given format; raises CommandError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}") from error
    fields = {"model": "default", "response_format": response_format}
    if language:
        fields["language"] = language
    local = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
    base_url = url.rstrip("/") if url else local if is_ready(local) else None
    if base_url is not None:
        return _post(base_url, path.name, content, fields)
    with OwnServer(free_port()) as server:
        return _post(server.base_url, path.name, content, fields)


def _post(base_url: str, name: str, content: bytes, fields: dict[str, str]) -> str:
    with ProgressBar(name) as bar:
        bar.update("transcribing", 0, 0)
        try:
            response = httpx.post(
                f"{base_url}/v1/audio/transcriptions",
                data=fields,
                files={"file": (name, content)},
                headers=authorization(),
                timeout=None,
            )
        except httpx.HTTPError as error:
            raise CommandError(f"no server answers at {base_url} ({error})") from error
    if response.is_success:
        return response.text
    try:
        reason = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        reason = f"HTTP {response.status_code}"
    raise CommandError(f"{name} was not transcribed: {reason}")
