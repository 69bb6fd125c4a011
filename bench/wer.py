"""Word error rate and lag of live transcripts, through the gateway, beside the same model offline.

    python bench/wer.py --data ../shared/data [--turns server_vad|manual] [--parallel 2]

Every clip of bench/clips.json is said at speaking pace in 20 ms appends by the unmodified `openai`
client. The peer is faster-whisper with its defaults (beam 5, fallback, int8) on the same files of
the same weights, in the same run. Both sides are normalised by whisper-normalizer. The lag of a
word is the time from its end in the recording (by the peer's word times) to its first appearance
on the screen, settled or not.
"""

import argparse
import asyncio
import difflib
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jiwer
from faster_whisper import WhisperModel
from whisper_normalizer.english import EnglishTextNormalizer

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "bench")]

from servers import serve  # noqa: E402  # the path is set above
from talker import Told, Turns, read_clip, talk  # noqa: E402  # the path is set above

from sensorium.core.sources import resolve  # noqa: E402  # the path is set above

normalize = EnglishTextNormalizer()


@dataclass(slots=True)
class Result:
    """One clip: reference, what we said, what the peer said, word lags in seconds."""

    file: str
    band: str
    reference: str
    ours: str
    peer: str
    lags_s: list[float]


def rate(results: list[Result], side: str) -> float:
    """Return the word error rate in percent over all words of `results`."""
    references = [normalize(r.reference) for r in results]
    return 100 * jiwer.wer(references, [normalize(getattr(r, side)) for r in results])


def offline(model: WhisperModel, path: Path) -> tuple[str, list[tuple[str, float]]]:
    """Return the peer's text and its words with their ends in seconds."""
    segments, _ = model.transcribe(str(path), language="en", word_timestamps=True)
    words = [word for segment in segments for word in (segment.words or [])]
    ends = [(normalize(word.word), word.end) for word in words]
    return "".join(word.word for word in words), [(w, end) for w, end in ends if w]


def lags(told: Told, ends: list[tuple[str, float]]) -> list[float]:
    """Return, for each word that both sides heard, the time until it was first shown."""
    final = normalize(" ".join(told.transcripts)).split()
    snapshots = [(at, normalize(text).split()) for at, text in told.shown]
    matcher = difflib.SequenceMatcher(a=final, b=[word for word, _ in ends], autojunk=False)
    found = []
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            place, end = block.a + offset, ends[block.b + offset][1]
            times = [t for t, words in snapshots if words[place : place + 1] == [final[place]]]
            if times:
                found.append(min(times) - end)
    return found


async def run(
    url: str, clips: list[dict[str, Any]], data: Path, model: WhisperModel, turns: Turns, width: int
) -> list[Result]:
    """Say all clips, `width` at a time; the peer runs before, so that it doesn't disturb."""
    heard = {clip["file"]: offline(model, data / clip["file"]) for clip in clips}
    gate = asyncio.Semaphore(width)

    async def one(clip: dict[str, Any]) -> Result:
        peer, ends = heard[clip["file"]]
        async with gate:
            told = await talk(url, read_clip(data / clip["file"]), turns=turns)
        for problem in told.errors + told.failures:
            print(f"  {clip['file']}: {problem}", file=sys.stderr)
        ours = " ".join(told.transcripts)
        return Result(clip["file"], clip["band"], clip["text"], ours, peer, lags(told, ends))

    return list(await asyncio.gather(*(one(clip) for clip in clips)))


def report(results: list[Result]) -> None:
    """Print the figures clip by clip and per band."""
    print(f"{'clip':44} {'ours':>6} {'offline':>8}  (WER %)")
    for result in results:
        ours, peer = rate([result], "ours"), rate([result], "peer")
        print(f"{result.file:44} {ours:6.1f} {peer:8.1f}")
        if ours > peer:
            print(f"    said: {normalize(result.ours)}\n    ref:  {normalize(result.reference)}")
    for band in ("wide", "8k"):
        of_band = [r for r in results if r.band == band]
        if of_band:
            ours, peer = rate(of_band, "ours"), rate(of_band, "peer")
            print(f"{band}: {len(of_band)} clips, WER {ours:.1f} % live, {peer:.1f} % offline")
    print(f"all: WER {rate(results, 'ours'):.1f} % live, {rate(results, 'peer'):.1f} % offline")
    all_lags = sorted(lag for result in results for lag in result.lags_s)
    if all_lags:
        p90 = all_lags[int(0.9 * (len(all_lags) - 1))]
        print(f"lag of a word: median {statistics.median(all_lags):.2f} s, 90th {p90:.2f} s")


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--turns", choices=["server_vad", "manual"], default="server_vad")
    parser.add_argument("--parallel", type=int, default=2, help="clips said at the same time")
    parser.add_argument("--url", help="a running server; by default one is started")
    arguments = parser.parse_args()
    clips = json.loads((ROOT / "bench" / "clips.json").read_text())["clips"]
    model = WhisperModel(str(resolve("whisper-tiny.en", None)), "cpu", compute_type="int8")
    options = (clips, arguments.data, model, arguments.turns, arguments.parallel)
    if arguments.url:
        report(asyncio.run(run(arguments.url, *options)))
        return
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server:
        report(asyncio.run(run(server.url, *options)))


if __name__ == "__main__":
    main()
