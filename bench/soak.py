"""Many sessions with random cuts: does the server give everything back, and stay quiet?

    python bench/soak.py --data ../shared/data [--sessions 60] [--seconds 300]

Talkers come and go at random; each is cut at a random point: between two packets, in the middle of
an answer, with and without a close. Printed at the end: memory of gateway and engine over time,
sequences left in the engine, what the log holds above INFO.
"""

import argparse
import asyncio
import base64
import json
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import websockets
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from servers import Server, serve  # noqa: E402  # the path is set above
from talker import PACKET_MS, RATE_HZ, read_clip, session_update  # noqa: E402  # the path is set above

CLIPS = ("audio/q_brooklyn_16k.wav", "audio/jfk_16k.wav", "audio/vctk_p225_003.wav")
SETTLE_S = 10.0


def resident_mib(pid: int) -> float:
    """Return a process's resident memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


def metric(server: Server, name: str) -> float:
    """Return one value of /metrics."""
    text = httpx.get(f"{server.url}/metrics", timeout=10).text
    return float(re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)[0])


async def visit(server: Server, pcm: NDArray[np.int16], dice: random.Random) -> str:
    """Talk for a while, then leave in one of many ways; returns how."""
    url = f"{server.realtime_url}?model=default&live_transcripts=true"
    async with websockets.connect(url, max_size=None) as socket:
        update = {"type": "session.update", "session": session_update("server_vad", respond=True)}
        await socket.send(json.dumps(update))
        cut_at = dice.randrange(1, len(pcm) // 480 + 100)
        reading = asyncio.ensure_future(_drain(socket))
        try:
            for number in range(cut_at):
                piece = pcm[number * 480 : (number + 1) * 480]
                if not len(piece):
                    piece = np.zeros(480, np.int16)
                audio = base64.b64encode(piece.tobytes()).decode()
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
                await asyncio.sleep(PACKET_MS / 1000)
        except websockets.ConnectionClosed as closed:
            return f"closed by the server: {closed}"
        finally:
            reading.cancel()
        how = dice.choice(["close", "abort"])
        if how == "abort":
            socket.transport.abort()
    return how


async def _drain(socket: websockets.ClientConnection) -> None:
    async for _ in socket:
        pass


async def soak(server: Server, data: Path, sessions: int, seconds: float) -> None:
    """Run all visits, spread over the time, and sample memory."""
    dice = random.Random(7)
    clips = [read_clip(data / clip, RATE_HZ) for clip in CLIPS]
    ends: dict[str, int] = {}
    engine_pid = server.engine_pid

    async def visitor() -> None:
        await asyncio.sleep(dice.uniform(0, seconds))
        try:
            how = await visit(server, dice.choice(clips), dice)
        except websockets.WebSocketException as error:
            how = f"{type(error).__name__}: {error}"
        ends[how] = ends.get(how, 0) + 1

    async def watch() -> None:
        for _ in range(10):
            pids = (server.process.pid, engine_pid)
            gateway, engine = map(resident_mib, pids)
            print(f"gateway {gateway:6.0f} MiB, engine {engine:6.0f} MiB", flush=True)
            await asyncio.sleep(seconds / 10)

    await asyncio.gather(watch(), *(visitor() for _ in range(sessions)))
    await asyncio.sleep(SETTLE_S)
    print("ends:", ends)


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=300.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server:
        started_at = time.monotonic()
        asyncio.run(soak(server, arguments.data, arguments.sessions, arguments.seconds))
        print(f"{arguments.sessions} sessions in {time.monotonic() - started_at:.0f} s")
        print("sessions open:", metric(server, "sensorium_sessions_open"))
        print("sequences in the engine:", metric(server, "sensorium_engine_sequences"))
        print(f"gateway {resident_mib(server.process.pid):.0f} MiB at the end")
        log = server.log.read_text()
        loud = [line for line in log.splitlines() if re.search(r"WARN|ERROR|Traceback", line)]
        print(f"log: {len(log.splitlines())} lines, {len(loud)} above INFO", *loud[:10], sep="\n  ")


if __name__ == "__main__":
    main()
