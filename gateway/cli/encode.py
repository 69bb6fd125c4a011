"""`sensorium encode`: a file of sound, a picture or a video to embedding rows and slot tokens."""

import argparse
import asyncio
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from sensorium.core.errors import CoreError
from sensorium.core.sources import as_typed, resolve
from sensorium.encoders.decode import decode, decode_image, decode_video
from sensorium.encoders.media import Intake, MediaError, MediaFrame, Pts, joined
from sensorium.gateway.settings import Settings, SettingsError, load_settings

Clip = tuple[str, Sequence[MediaFrame]]

_MODALITIES: Mapping[str, tuple[str, ...]] = {
    "audio": ("audio",),
    "image": ("image",),
    "video": ("video", "audio"),
}
"""What each kind of file may hold."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command's arguments."""
    parser = subparsers.add_parser(
        "encode",
        help="encode a file as serving does, and save its rows and slot tokens",
        description="ROWS gets input_ids [m] with the marks, rows [n, D], row_positions, start_s "
        "and end_s [n]: a safetensors file that `sensorium forward` reads. The sound of a video "
        "follows its frames, on the same clock.",
    )
    parser.add_argument("modality", choices=tuple(_MODALITIES))
    parser.add_argument("file", type=Path, metavar="FILE", help="in any common format")
    parser.add_argument("--model", metavar="DIR|NAME", help="decoder (default: as configured)")
    parser.add_argument("--out", type=Path, required=True, metavar="ROWS", help="file to write")
    parser.add_argument(
        "--chunk-ms",
        type=_count,
        metavar="N",
        help="feed the encoder N milliseconds at a time, as if live (default: the whole)",
    )
    parser.add_argument("--detail", choices=("auto", "low", "high"), default="auto")
    parser.add_argument(
        "--dtype",
        choices=("auto", "bfloat16", "float16", "float32"),
        help="what is computed in (default: as configured; auto is float32 here)",
    )
    parser.add_argument("--config", type=Path, help="settings file (default: ./sensorium.toml)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Decode, encode and write; returns 1 with a sentence if that can't be done."""
    try:
        settings = _configured(load_settings(args.config), args)
        data = args.file.read_bytes()
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"✗ {args.file} can't be read: {error.strerror}", file=sys.stderr)
        return 1
    # Here, so that the other commands start without torch.
    from sensorium.core.encode import MediaEncoder, encode_to

    models = settings.models
    cache_dir = Path(models.cache_dir).expanduser() if models.cache_dir else None
    modalities = _MODALITIES[args.modality]
    try:
        encoder = MediaEncoder(resolve(models.decoder, cache_dir), models, modalities)
        _check(encoder.intakes, args.modality, models.decoder)
        clips = asyncio.run(_decoded(args.modality, data, encoder.intakes, args.detail))
        chunk_s = None if args.chunk_ms is None else args.chunk_ms / 1000
        encoded = encoder.encode(clips, chunk_s)
        names = ", ".join(encoder.intakes[modality].encoder for modality, _ in clips)
        encode_to(args.out, encoded, {"model": models.decoder, "encoder": names})
    except (CoreError, MediaError) as error:
        print(f"✗ {error}", file=sys.stderr)
        return 1
    for name, tensor in encoded.tensors.items():
        print(f"{name:20} {list(tensor.shape)}")
    if encoded.words:
        print(f"{names}: {encoded.words}")
    size = sum(tensor.nbytes for tensor in encoded.tensors.values())
    print(f"✓ {names}: {size:,} bytes in {args.out}")
    return 0


async def _decoded(
    kind: str, data: bytes, intakes: Mapping[str, Intake], detail: str
) -> list[Clip]:
    """Return what is in a file as clips, in the order of the sequence; raises MediaError."""
    if kind == "audio":
        rate_hz = intakes["audio"].rate_hz
        samples = await decode(data, rate_hz)
        return [("audio", [MediaFrame(pts=Pts(0), rate_hz=rate_hz, data=samples)])]
    if kind == "image":
        return [("image", [await decode_image(data, intakes["image"], detail=detail)])]
    frames: dict[str, list[MediaFrame]] = {"video": [], "audio": []}
    rate = intakes["audio"].rate_hz if "audio" in intakes else None
    async with aclosing(decode_video(data, intakes["video"], sound_rate_hz=rate)) as pieces:
        async for modality, frame in pieces:
            frames[modality].append(frame)
    clips = [("video", frames["video"]), ("audio", joined(frames["audio"]))]
    return [clip for clip in clips if clip[1]]


def _check(intakes: Mapping[str, Intake], modality: str, model: str) -> None:
    if modality not in intakes:
        known = " and ".join(sorted(intakes)) or "nothing"
        raise CoreError(f"{model} has no encoder for {modality}; it can encode {known}")


def _configured(settings: Settings, args: argparse.Namespace) -> Settings:
    """Return the settings with the command's own in place."""
    models = dataclasses.replace(
        settings.models,
        decoder=as_typed(args.model) if args.model else settings.models.decoder,
        dtype=args.dtype or settings.models.dtype,
    )
    return dataclasses.replace(settings, models=models)


def _count(text: str) -> int:
    """Read a whole number from 1 on."""
    if (number := int(text)) < 1:
        raise ValueError
    return number
