"""Word error rate of the speech encoder alone: streamed, and whole files, without a gateway.

    python bench/wer_offline.py --data ../shared/data [--offline] [--band wide|8k] [NAME=VALUE …]

Every clip of bench/clips.json is pushed in 20 ms pieces, with 0.3 s of faint noise before and
0.5 s after it, as turns have. NAME=VALUE changes a field of `encoders.speech_tuning.Tuning`.
Prints per clip and band: word errors (whisper-normalizer on both sides), words settled before the
flush, CPU seconds per second of sound.
"""

import argparse
import ast
import json
import time
from collections import defaultdict
from pathlib import Path

import av
import jiwer
import numpy as np
from whisper_normalizer.english import EnglishTextNormalizer

from sensorium.core.sources import resolve
from sensorium.encoders.base import ClipHints
from sensorium.encoders.media import AudioFrame, Pts, Samples
from sensorium.encoders.speech import SpeechEncoder, Tuning

RATE_HZ = 16_000
PIECE = RATE_HZ // 50


def load(path: Path) -> Samples:
    """Decode a file to mono float32 at 16 kHz, with the silence of a turn around it."""
    resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE_HZ)
    with av.open(str(path)) as container:
        decoded = [*container.decode(audio=0), None]
        frames = [f.to_ndarray()[0] for frame in decoded for f in resampler.resample(frame)]
    noise = np.random.default_rng(0).standard_normal(RATE_HZ).astype(np.float32) * 2e-4
    return np.concatenate([noise[:4800], *frames, noise[: RATE_HZ // 2]])


def transcribe(encoder: SpeechEncoder, samples: Samples, live: bool) -> tuple[str, str]:
    """Return the text settled before the flush, and by it."""
    state = encoder.open(ClipHints(live=live))
    text = ""
    for start in range(0, len(samples), PIECE):
        piece = samples[start : start + PIECE]
        frame = AudioFrame(pts=Pts(start), rate_hz=RATE_HZ, samples=piece)
        text += encoder.push([frame], [state])[0].text
    return text, encoder.flush([state])[0].text


def main() -> None:
    """Run all clips and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="whisper-tiny.en")
    parser.add_argument("--band", choices=["wide", "8k"])
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("tuning", nargs="*")
    arguments = parser.parse_args()
    changes = {name: ast.literal_eval(v) for name, v in (t.split("=") for t in arguments.tuning)}
    encoder = SpeechEncoder(
        resolve(arguments.model, None), threads=2, tuning=Tuning(**changes), name=arguments.model
    )
    normalize = EnglishTextNormalizer()
    totals: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(6))
    for clip in json.loads((Path(__file__).parent / "clips.json").read_text())["clips"]:
        if arguments.band not in (None, clip["band"]):
            continue
        samples = load(arguments.data / clip["file"])
        began = time.process_time()
        early, late = transcribe(encoder, samples, not arguments.offline)
        cpu_s = time.process_time() - began
        score = jiwer.process_words(normalize(clip["text"]), normalize(early + late))
        errors = score.substitutions + score.deletions + score.insertions
        num_words = score.hits + score.substitutions + score.deletions
        num_early, num_late = len(early.split()), len(late.split())
        row = [errors, num_words, num_early, num_early + num_late, cpu_s, len(samples) / RATE_HZ]
        print(
            f"{clip['file']:50s} {errors}/{num_words}  settled early {num_early}, late {num_late}"
        )
        for key in (clip["band"], f"{clip['band']}, {clip['reference']} references"):
            totals[key] += row
    for key, (errors, words, early_words, all_words, cpu_s, sound_s) in totals.items():
        print(
            f"{key}: WER {100 * errors / words:.2f} % ({errors:.0f} of {words:.0f}), settled "
            f"before the flush {early_words / max(1, all_words):.0%}, {cpu_s / sound_s:.3f} CPU s/s"
        )


if __name__ == "__main__":
    main()
