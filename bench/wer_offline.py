"""Word error rate of the speech encoder on the turns that the gateway cuts, without a gateway.

    python bench/wer_offline.py --data ../shared/data [--vary half|shift|16k|telephone]
        [--texts clips.tsv] [--whole] [NAME=VALUE …]

Every clip of bench/clips.json (or of a table `file<TAB>text` beside its files) goes as 24 kHz
PCM16 through the gateway's timeline, voice activity and turn detection, all default; each turn
goes through the encoder as live speech, and the texts are joined. The result is what bench/wer.py
measures, in a fraction of the time and the same in every run. What recognisers hear changes with
the smallest change of the sound, so settings should be compared with --vary as well. --whole hears
whole clips as files instead. NAME=VALUE changes a field of `encoders.speech_tuning.Tuning`.
"""

import argparse
import ast
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import jiwer
import numpy as np
import soxr
from numpy.typing import NDArray
from talker import AFTER_S, RATE_HZ, read_clip
from whisper_normalizer.english import EnglishTextNormalizer

from sensorium.core.sources import resolve
from sensorium.encoders.base import ClipHints
from sensorium.encoders.media import MediaFrame, Pts, Samples
from sensorium.encoders.speech import SpeechEncoder, Tuning
from sensorium.encoders.vad import SpeechDetector
from sensorium.gateway.configuration import AudioFormat, TurnDetection
from sensorium.gateway.ingest import Timeline
from sensorium.gateway.listening import Listener
from sensorium.gateway.turns import VAD_RATE_HZ, WINDOW_SAMPLES, Change, VoiceActivity

Pcm = NDArray[np.int16]


def vary(pcm: Pcm, way: str | None) -> Pcm:
    """Return the clip as another microphone or line would have sent it."""
    match way:
        case "half":
            return pcm // 2
        case "shift":
            return np.concatenate([np.zeros(RATE_HZ // 10, np.int16), pcm])
        case "16k":
            return soxr.resample(soxr.resample(pcm, RATE_HZ, 16_000), 16_000, RATE_HZ)
        case "telephone":  # μ-law's curve (ITU-T G.711) with 8 bits, at 8 kHz
            line = soxr.resample(pcm, RATE_HZ, 8_000) / 32768
            curve = np.sign(line) * np.log1p(255 * np.abs(line)) / np.log(256)
            curve = np.round(curve * 127) / 127
            line = np.sign(curve) * (np.exp(np.abs(curve) * np.log(256)) - 1) / 255
            return soxr.resample((line * 32767).astype(np.int16), 8_000, RATE_HZ)
        case _:
            return pcm


def turns(pcm: Pcm, detector: SpeechDetector) -> Iterator[Samples]:
    """Yield the sound of each turn at 16 kHz, as the gateway would hand it to the encoder."""
    waiting: list[Samples] = []
    listener = Listener(TurnDetection(), waiting.extend, rate_hz=VAD_RATE_HZ)
    timeline = Timeline(AudioFormat(), VAD_RATE_HZ)
    state = detector.open()
    turn: list[Samples] = []
    pcm = np.concatenate([pcm, np.zeros(int(AFTER_S * RATE_HZ), np.int16)])
    listener.append(timeline.append(pcm.astype("<i2").tobytes()))
    for window in waiting:
        verdict = VoiceActivity(probability=detector.score([window], [state])[0])
        heard = listener.hear(verdict, in_turn=bool(turn))
        if heard is None:
            continue
        turn.append(heard.sound)
        if heard.change is Change.STOPPED:
            listener.end_turn()
            yield np.concatenate(turn)
            turn = []
    if turn:
        yield np.concatenate(turn)


def transcribe(encoder: SpeechEncoder, samples: Samples, live: bool) -> tuple[str, str, float]:
    """Return the text settled before the flush, that by it, and the flush's seconds."""
    state = encoder.open(ClipHints(live=live))
    text = ""
    for start in range(0, len(samples), WINDOW_SAMPLES):
        piece = samples[start : start + WINDOW_SAMPLES]
        frame = MediaFrame(pts=Pts(start), rate_hz=VAD_RATE_HZ, data=piece)
        text += encoder.push([(frame,)], [state])[0].text
    began = time.perf_counter()
    rest = encoder.flush([state])[0].text
    return text, rest, time.perf_counter() - began


def clips(arguments: argparse.Namespace) -> Iterator[tuple[str, str, Path]]:
    """Yield (group, text, file) of every clip asked for."""
    if arguments.texts:
        for line in arguments.texts.read_text().splitlines():
            file, text = line.split("\t")
            yield arguments.texts.stem, text, arguments.data / file
        return
    for clip in json.loads((Path(__file__).parent / "clips.json").read_text())["clips"]:
        yield clip["band"], clip["text"], arguments.data / clip["file"]


def main() -> None:
    """Run all clips and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--texts", type=Path, help="table of other clips: file, tab, text")
    parser.add_argument("--vary", choices=["half", "shift", "16k", "telephone"])
    parser.add_argument("--whole", action="store_true", help="hear whole clips as files")
    parser.add_argument("tuning", nargs="*")
    arguments = parser.parse_args()
    changes = {name: ast.literal_eval(v) for name, v in (t.split("=") for t in arguments.tuning)}
    model_dir = resolve("whisper-tiny.en", None)
    encoder = SpeechEncoder(model_dir, threads=2, tuning=Tuning(**changes))
    detector = SpeechDetector(resolve("silero-vad", None))
    normalize = EnglishTextNormalizer()
    totals: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(6))
    flushes: list[float] = []
    for group, reference, path in clips(arguments):
        pcm = vary(read_clip(path), arguments.vary)
        whole = [soxr.resample(pcm, RATE_HZ, VAD_RATE_HZ).astype(np.float32) / 32768]
        sounds = whole if arguments.whole else list(turns(pcm, detector))
        began = time.process_time()
        heard = [transcribe(encoder, sound, not arguments.whole) for sound in sounds]
        cpu_s = time.process_time() - began
        flushes += [seconds for *_, seconds in heard]
        text = " ".join((early + late).strip() for early, late, _ in heard)
        score = jiwer.process_words(normalize(reference), normalize(text))
        errors = score.substitutions + score.deletions + score.insertions
        num_words = score.hits + score.substitutions + score.deletions
        early_words = sum(len(early.split()) for early, *_ in heard)
        sound_s = sum(map(len, sounds)) / VAD_RATE_HZ
        totals[group] += [errors, num_words, early_words, len(text.split()), cpu_s, sound_s]
        print(f"{path.name:45} {errors:2.0f} of {num_words:3} words wrong")
    for group, (errors, words, early_words, all_words, cpu_s, sound_s) in totals.items():
        print(
            f"{group}: WER {100 * errors / words:.2f} % ({errors:.0f} of {words:.0f}), settled "
            f"before the flush {early_words / max(1, all_words):.0%}, {cpu_s / sound_s:.3f} CPU s/s"
        )
    median, most = np.quantile(flushes, [0.5, 0.9])
    print(f"flush: median {median:.2f} s, 90th {most:.2f} s")


if __name__ == "__main__":
    main()
