"""Muse Spark's ears: sound at 24 kHz → one row per 80 ms, as it arrives, equal to all at once.

A clip is one stream from silence to its end. Its rows depend on nothing later than themselves, so
a row is made as soon as its last sample is there. What the tower computes stands in
muse_audio_tower.py.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sensorium.encoders.base import ClipHints, EncoderSources, Output, Rows
from sensorium.encoders.media import Intake, MediaError, MediaFrame, Samples
from sensorium.encoders.muse_audio_tower import MuseAudioTower, TowerConfig

USUAL_RATE_HZ = 24_000

LOUDEST = 1e15
"""Samples are in [-1, 1]. Beyond this the squares in the first norm would leave float32."""

MAX_HOPS = 64
"""Most rows of all streams in one pass: 60 MB of what lies between two layers."""

_PREPROCESSING = (("processor_config.json", "feature_extractor"), ("preprocessor_config.json", ""))
"""Files that may say the rate, and in which section."""

_REVISION = "muse-audio 1"
"""Changes with whatever changes rows and is neither in the configuration nor in the weights."""


@dataclass(slots=True, eq=False)
class MuseClip:
    """State of one clip; owned by the caller, changed only by the encoder.

    `past` [past_size] is what the tower remembers, `waiting` the samples after the last whole hop.
    `start_s` is the time of the first sample, None before it.
    """

    past: Tensor
    waiting: Samples
    num_rows: int = 0
    start_s: float | None = None


class MuseAudio:
    """Makes rows of sound; fits `encoders.base.Encoder[MuseClip]`."""

    name = "muse-spark-audio"
    max_batch = 64

    @classmethod
    def load(cls, sources: EncoderSources) -> "MuseAudio | None":
        """Return the audio tower of a Muse Spark checkpoint, None if it is none or has none.

        Raises ValueError for a configuration or a tensor that can't be run.
        """
        config = sources.config
        if config.get("model_type") != "muse_spark" or config.get("audio_config") is None:
            return None
        sizes = TowerConfig.read(config)
        rate_hz = _rate_hz(sources.folder)
        about = f"{_REVISION} {asdict(sizes)} {rate_hz} {sources.dtype}"
        tensors = _CheckedTensors(sources.tensor, about)
        tower = MuseAudioTower(sizes, tensors, sources.dtype)
        return cls(tower, rate_hz=rate_hz, dtype=sources.dtype, revision=tensors.fingerprint())

    def __init__(
        self, tower: MuseAudioTower, *, rate_hz: int, dtype: torch.dtype, revision: str
    ) -> None:
        """Make rows of `dtype` from sound at `rate_hz`.

        `revision` is a hash of the sizes, the rate, `dtype` and all bytes of the weights.
        """
        self.revision = revision
        self._tower, self._dtype = tower, dtype
        self._hop = tower.config.hop_samples
        self.intake = Intake(
            encoder=self.name, rate_hz=rate_hz, gives_rows=True, ticks_per_row=self._hop
        )

    def open(self, hints: ClipHints) -> MuseClip:
        """Return the state of a new clip: zeros, which is not what silence would leave behind."""
        past = torch.zeros(self._tower.config.past_size)
        return MuseClip(past=past, waiting=np.zeros(0, np.float32))

    def ready(self, state: MuseClip, num_ticks: int) -> bool:
        """Tell whether `num_ticks` samples not yet pushed complete a hop."""
        return len(state.waiting) + num_ticks >= self._hop

    def push(self, frames: list[tuple[MediaFrame, ...]], states: list[MuseClip]) -> list[Output]:
        """Encode every hop that is complete; what is left of each clip waits.

        Frames are taken as following each other. What is not finite counts as silence. If this
        raises (MediaError on a frame of another rate), no clip has taken anything in.
        """
        sounds = [
            np.concatenate([clip.waiting, *(self._samples(frame) for frame in run)])
            for run, clip in zip(frames, states, strict=True)
        ]
        for run, clip in zip(frames, states, strict=True):
            if clip.start_s is None and run:
                clip.start_s = run[0].start_s
        return self._encode(sounds, states)

    def anticipate(self, states: list[MuseClip]) -> None:
        """Do nothing: at most one hop is ever left to encode."""

    def flush(self, states: list[MuseClip]) -> list[Output]:
        """End each clip; a hop that has begun is filled up with zeros."""
        sounds = [np.pad(c.waiting, (0, -len(c.waiting) % self._hop)) for c in states]
        return self._encode(sounds, states)

    def _samples(self, frame: MediaFrame) -> Samples:
        if frame.rate_hz != self.intake.rate_hz:
            raise MediaError(
                "unsupported_rate",
                f"{self.name} takes sound at {self.intake.rate_hz} Hz, not {frame.rate_hz} Hz",
            )
        finite = np.nan_to_num(frame.data, nan=0.0, posinf=0.0, neginf=0.0)
        return finite.clip(-LOUDEST, LOUDEST)

    def _encode(self, sounds: Sequence[Samples], clips: Sequence[MuseClip]) -> list[Output]:
        """Encode the whole hops of each clip's sound and let the rest of it wait."""
        counts = [len(sound) // self._hop for sound in sounds]
        pasts = [clip.past for clip in clips]
        rows: list[list[Tensor]] = [[] for _ in clips]
        for shares in passes(counts, MAX_HOPS):
            parts = [sounds[i][a * self._hop : b * self._hop] for i, a, b in shares]
            sizes = [b - a for _, a, b in shares]
            batch = torch.stack([pasts[i] for i, _, _ in shares])
            with torch.no_grad():
                samples = torch.from_numpy(np.concatenate(parts))
                encoded = self._tower(samples, torch.tensor(sizes), batch).to(self._dtype)
            by_clip = torch.split(encoded, sizes)
            for (i, _, _), part, past in zip(shares, by_clip, batch, strict=True):
                rows[i].append(part)
                pasts[i] = past
        outputs = [self._output(clip, made) for clip, made in zip(clips, rows, strict=True)]
        for clip, sound, count, past in zip(clips, sounds, counts, pasts, strict=True):
            clip.past = past.clone()  # on its own: no clip holds the batch of another one
            clip.waiting = sound[count * self._hop :].copy()
            clip.num_rows += count
        return outputs

    def _output(self, clip: MuseClip, made: list[Tensor]) -> Output:
        if not made:
            return Output(encoder=self.name)
        step_s = self._hop / self.intake.rate_hz
        start_s = (clip.start_s or 0.0) + clip.num_rows * step_s
        rows = Rows(values=torch.cat(made), start_s=start_s, step_s=step_s)
        return Output(rows=(rows,), encoder=self.name)


def passes(counts: Sequence[int], most: int) -> Iterator[list[tuple[int, int, int]]]:
    """Share hops out to passes of about `most`: (stream, first hop, end) of each that takes part.

    All streams that have some left take part alike, so that one long clip holds none up.
    """
    done = [0] * len(counts)
    while active := [i for i, count in enumerate(counts) if done[i] < count]:
        share = max(1, most // len(active))
        ends = {i: min(counts[i], done[i] + share) for i in active}
        yield [(i, done[i], end) for i, end in ends.items()]
        for i, end in ends.items():
            done[i] = end


class _CheckedTensors:
    """The checkpoint's tensors, refused where they don't fit, and a hash of all that were read."""

    def __init__(self, tensor: Callable[[str], Tensor], about: str) -> None:
        self._tensor = tensor
        self._hash = hashlib.sha256(about.encode())

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor of this shape. Raises ValueError that names it."""
        try:
            tensor = self._tensor(name)
        except KeyError as error:
            raise ValueError(f"the checkpoint lacks {name}, needed as {list(shape)}") from error
        if tuple(tensor.shape) != shape or not tensor.is_floating_point():
            found = f"{tensor.dtype} {list(tensor.shape)}".removeprefix("torch.")
            raise ValueError(f"{name} is {found}, needed are floats {list(shape)}")
        self._hash.update(f"{name} {tensor.dtype}".encode())
        self._hash.update(tensor.contiguous().view(torch.uint8).numpy().data)
        return tensor

    def fingerprint(self) -> str:
        return self._hash.hexdigest()[:16]


def _rate_hz(folder: Path) -> int:
    """Return the rate that the checkpoint's preprocessing says, the usual one if it says none."""
    for name, section in _PREPROCESSING:
        path = folder / name
        if not path.is_file():
            continue
        try:
            settings = json.loads(path.read_bytes())
            rate_hz = (settings.get(section, {}) if section else settings).get("sampling_rate")
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{path} is no JSON object of settings: {error}") from error
        if rate_hz is None:
            continue
        if type(rate_hz) is not int or rate_hz < 1:
            raise ValueError(f"{path}: sampling_rate must be a number above 0, got {rate_hz!r}")
        return rate_hz
    return USUAL_RATE_HZ
