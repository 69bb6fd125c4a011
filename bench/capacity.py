"""How many people may talk at once in real time, and how the server behaves beyond that.

    python bench/capacity.py --data ../shared/data

1. The encoder alone, on live streams at speaking pace that pause for a new turn every TURN_S, none
   at the same time: how many it follows, beside the same model re-encoding windows padded to
   Whisper's full 30 s, in the same run.
2. The whole server with the default: talkers over WebSocket until one isn't *carried*. A talker is
   carried if words appear at least every MAX_GAP_S while it speaks and its transcript is complete
   MAX_FINAL_S after its end.
3. One more talker than the server admits: refused with an error and close code 1013.
"""

import argparse
import asyncio
import dataclasses
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from openai import AsyncOpenAI

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from servers import Server, serve  # noqa: E402  # the path is set above
from talker import RATE_HZ, Told, read_clip, talk  # noqa: E402  # the path is set above

from sensorium.core.sources import resolve  # noqa: E402  # the path is set above
from sensorium.encoders.base import ClipHints, Output  # noqa: E402  # the path is set above
from sensorium.encoders.media import MediaFrame, Pts  # noqa: E402  # the path is set above
from sensorium.encoders.pool import EncoderPool  # noqa: E402  # the path is set above
from sensorium.encoders.speech import SpeechEncoder, Tuning  # noqa: E402  # the path is set above

MAX_GAP_S = 4.0
MAX_FINAL_S = 4.0
TALK_S = 20.0
TURN_S = 8.0
CLIPS = ("audio/libri_1088-134315-0000.wav", "audio/libri_198-209-0000.ogg", "audio/jfk_16k.wav")
MAX_TALKERS = 64
CORES = len(os.sched_getaffinity(0))


def speech(data: Path, rate_hz: int, seconds: float) -> list[NDArray[np.int16]]:
    """Return one endless-enough monologue per clip, each `seconds` long."""
    sound = [read_clip(data / clip, rate_hz) for clip in CLIPS]
    whole = np.concatenate(sound * (1 + int(seconds)))
    offsets = np.cumsum([0, *map(len, sound)])[:-1]
    return [whole[start : start + int(seconds * rate_hz)] for start in offsets]


class Followed:
    """What the pool told of the turns of many streams, and when."""

    def __init__(self) -> None:
        self.times: dict[tuple[int, int], list[float]] = {}
        self.closed: dict[tuple[int, int], float] = {}
        self.ended: dict[tuple[int, int], float] = {}
        self.changed = threading.Condition()

    def on_output(
        self, key: tuple[int, int], num_samples: int, output: Output, final: bool
    ) -> None:
        """Note the time of an output; called by the pool's thread."""
        with self.changed:
            (self.ended if final else {}).setdefault(key, time.monotonic())
            self.times[key].append(time.monotonic())
            self.changed.notify_all()

    def gap_s(self) -> float:
        """Return the longest time without news of a turn while it was spoken."""
        gaps = [
            np.diff([t for t in times if t <= self.closed[key]] + [self.closed[key]]).max(initial=0)
            for key, times in self.times.items()
        ]
        return float(max(gaps))

    def last_s(self) -> float:
        """Return the longest time from the end of a turn to its last words."""
        return max(self.ended.get(key, 1e9) - at for key, at in self.closed.items())


def follows(encoder: SpeechEncoder, clips: list[NDArray[np.int16]], count: int) -> bool:
    """Tell whether the encoder keeps up with `count` people who talk in turns of TURN_S."""
    told = Followed()
    pool = EncoderPool[tuple[int, int]](
        {"audio": encoder}, on_output=told.on_output, num_threads=CORES
    )
    pool.start()
    step = encoder.intake.rate_hz // 5
    turn_steps, num_steps = int(TURN_S * 5), int(TALK_S * 5)
    current: dict[int, tuple[int, int]] = {}
    started_at = time.monotonic()
    for number in range(num_steps + 1):
        time.sleep(max(0.0, started_at + number / 5 - time.monotonic()))
        for stream in range(count):
            is_border = (number + stream * turn_steps // count) % turn_steps == 0
            if stream in current and (is_border or number == num_steps):
                told.closed[current[stream]] = time.monotonic()
                pool.close(current.pop(stream))
            if number == num_steps:
                continue
            if stream not in current:
                current[stream] = key = (stream, number)
                told.times[key] = [time.monotonic()]
                pool.open(key, "audio", ClipHints())
            start = number * step
            piece = clips[stream % len(clips)][start : start + step].astype(np.float32) / 32768
            key = current[stream]
            pts = Pts(start - key[1] * step)
            pool.push(key, MediaFrame(pts=pts, rate_hz=encoder.intake.rate_hz, data=piece))
    with told.changed:
        told.changed.wait_for(lambda: len(told.ended) == len(told.closed), timeout=60)
    pool.stop()
    gap_s, last_s = told.gap_s(), told.last_s()
    print(f"    {count:3} streams: words every {gap_s:4.1f} s, last after {last_s:4.1f} s")
    return gap_s <= MAX_GAP_S and last_s <= MAX_FINAL_S


def largest(carries: Any, start: int = 4) -> int:
    """Return the largest count that is carried: by doubling, then by halves."""
    good, count = 0, start
    while count <= MAX_TALKERS and carries(count):
        good, count = count, count * 2
    bad = count
    if not good:
        good = next((n for n in range(start - 1, 0, -1) if carries(n)), 0)
    while bad - good > max(1, good // 8):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if carries(middle) else (good, middle)
    return good


def encoder_alone(data: Path) -> None:
    """Part 1: the default's way beside full padding."""
    model_dir = resolve("whisper-tiny.en", None)
    clips = speech(data, 16_000, TALK_S)
    found = {}
    for name, tuning in (
        ("default", Tuning()),
        ("padded to 30 s", dataclasses.replace(Tuning(), lengths_s=(30.0,))),
    ):
        print(f"  {name}:")
        encoder = SpeechEncoder(model_dir, threads=CORES, compute_type="int8", tuning=tuning)
        found[name] = largest(lambda count, e=encoder: follows(e, clips, count))
    ratio = found["default"] / max(1, found["padded to 30 s"])
    for name, count in found.items():
        print(f"encoder alone, {name}: {count} streams")
    print(f"ratio: {ratio:.1f}")


def is_carried(told: Told) -> bool:
    """Tell whether a talker was followed from its first word to its last."""
    if told.errors or not told.completed_at_s:
        return False
    for start, stop in told.speech:
        inside = [start, *(at for at, _ in told.shown if start < at < stop), stop]
        if max(np.diff(inside), default=0) > MAX_GAP_S:
            return False
    ends = [stop for _, stop in told.speech]
    late = [at - end for end, at in zip(ends, told.completed_at_s, strict=False)]
    return max(late, default=99) <= MAX_FINAL_S


async def talkers(url: str, clips: list[NDArray[np.int16]], count: int) -> bool:
    """Let `count` talkers say their part at once; tells whether all were carried."""

    async def one(number: int) -> Told:
        await asyncio.sleep(TURN_S * number / count)  # people don't begin at the same moment
        return await talk(url, clips[number % len(clips)])

    tolds = await asyncio.gather(*(one(number) for number in range(count)))
    carried = sum(is_carried(told) for told in tolds)
    print(f"    {count:3} talkers: {carried} carried")
    return carried == count


def whole_server(server: Server, data: Path) -> None:
    """Part 2: talkers over WebSocket."""
    clips = speech(data, RATE_HZ, TALK_S)
    count = largest(lambda count: asyncio.run(talkers(server.url, clips, count)))
    print(f"whole server: {count} real-time talkers")


async def one_too_many(url: str) -> None:
    """Part 3: open sessions until one is refused."""
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="unused")
    managers, refusal = [], None
    for _ in range(MAX_TALKERS * 2):
        manager = client.realtime.connect(model="default")
        connection = await manager.enter()
        managers.append(connection)
        first = await connection.recv()
        if first.type == "error":
            refusal = first.error
            try:
                await connection.recv()
            except Exception as error:  # whatever the client raises for a close; shown as it is
                print(f"then: {error}")
            break
    print(f"admitted {len(managers) - bool(refusal)}; refused with {refusal}")
    for connection in managers:
        await connection.close()


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--skip-encoder", action="store_true", help="only the whole server")
    arguments = parser.parse_args()
    if not arguments.skip_encoder:
        encoder_alone(arguments.data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "open.toml").write_text(f"[engine]\ncapacity = {2 * MAX_TALKERS}\n")
        with serve(folder, "--config", str(folder / "open.toml")) as server:
            whole_server(server, arguments.data)
        with serve(folder) as server:
            asyncio.run(one_too_many(server.url))


if __name__ == "__main__":
    main()
