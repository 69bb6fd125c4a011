"""`sensorium encode`: media to rows and slot tokens, file to file, on the path of serving.

The same pool, encoders and marks as the engine's, without a decoder. What is written is what
`sensorium forward` reads: a sequence of ids with rows at the slots, and the media time of each row.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from sensorium.core.api import (
    AppendMedia,
    CloseSpan,
    EngineEvent,
    OpenSpan,
    SequenceId,
    SpanClosed,
    SpanId,
)
from sensorium.core.clips import ClipKey, Clips, Encoded
from sensorium.core.config import ModelsConfig
from sensorium.core.encoding import marks_around, open_encoders
from sensorium.core.errors import CoreError
from sensorium.core.runner import DTYPES
from sensorium.core.span import Content
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.media import Intake, MediaFrame
from sensorium.encoders.pool import EncoderPool

ONE = SequenceId(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedMedia:
    """Clips one after the other, as they stand in a sequence.

    `tensors`: `input_ids` [m]; `rows` [n, D] in float32, with `row_positions` [n] and the media
    times `start_s` and `end_s` [n] of each (a picture's are all 0). Words have ids and no rows.
    `words` is what encoders heard or saw as text.
    """

    tensors: Mapping[str, Tensor]
    spans: Sequence[tuple[str, int, int]]
    words: str


@dataclass(slots=True)
class _Record:
    """Slots that only remember: where `Clips` puts ids and rows."""

    placeholder: int = 0
    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)

    def extend_span(self, sequence_id: SequenceId, span_id: SpanId, content: Content) -> None:
        """Note what comes next in the sequence."""
        if isinstance(content, tuple):
            self.ids += content
            return
        self.positions += range(len(self.ids), len(self.ids) + len(content))
        self.ids += [self.placeholder] * len(content)
        self.rows.append(content.float())

    def finish_span(self, sequence_id: SequenceId, span_id: SpanId) -> None:
        """Nothing is left to do."""


class MediaEncoder:
    """The encoders of a model, without its decoder."""

    def __init__(
        self, model_dir: Path, models: ModelsConfig, modalities: Sequence[str], threads: int = 0
    ) -> None:
        """Load them; raises CoreError for what is missing, damaged or not there to be had."""
        threads = threads or len(os.sched_getaffinity(0))
        dtype = DTYPES["float32" if models.dtype == "auto" else models.dtype]
        torch.set_num_threads(threads)
        self._encoders = open_encoders(models, model_dir, dtype, threads, modalities)
        self._marks = marks_around(model_dir, self._encoders)
        self._tokenizer = Tokenizer(model_dir)

    @property
    def intakes(self) -> dict[str, Intake]:
        """What can be encoded, by modality."""
        return {modality: encoder.intake for modality, encoder in self._encoders.items()}

    def encode(
        self, clips: Sequence[tuple[str, Sequence[MediaFrame]]], chunk_s: float | None = None
    ) -> EncodedMedia:
        """Encode (modality, frames) one after the other: whole, or `chunk_s` at a time as if live.

        Raises CoreError where an encoder says what is wrong with a clip.
        """
        record, heard = _Record(), _Heard()
        pool = EncoderPool[ClipKey](self._encoders, on_output=heard.add)
        slots = Clips(pool, self._encoders, record, self._tokenizer.encode, self._marks)
        spans = []
        for number, (modality, frames) in enumerate(clips, start=1):
            span_id, start = SpanId(number), len(record.ids)
            marks = self._marks.get(modality)
            record.placeholder = 0 if marks is None else marks.placeholder
            hints = ClipHints(live=chunk_s is not None)
            slots.open(OpenSpan(sequence_id=ONE, span_id=span_id, modality=modality, hints=hints))
            for frame in frames if chunk_s is None else chunks(frames, chunk_s):
                slots.push(_media(span_id, frame))
                heard.tell(pool, slots)
            slots.close(CloseSpan(sequence_id=ONE, span_id=span_id))
            heard.tell(pool, slots)
            spans.append((modality, start, len(record.ids)))
        return EncodedMedia(
            tensors=_tensors(record, heard.times), spans=spans, words=heard.words.strip()
        )


def encode_to(target: Path, encoded: EncodedMedia, described: Mapping[str, str]) -> None:
    """Write a safetensors file with `described` and the spans in its metadata. CoreError."""
    spans = json.dumps([{"modality": m, "start": a, "end": b} for m, a, b in encoded.spans])
    try:
        save_file(dict(encoded.tensors), target, metadata={**described, "spans": spans})
    except (OSError, SafetensorError) as error:
        raise CoreError(f"{target} can't be written: {error}") from error


def chunks(frames: Sequence[MediaFrame], chunk_s: float) -> Iterator[MediaFrame]:
    """Cut frames into pieces of at most `chunk_s`, one tick at least."""
    for frame in frames:
        step, rest = max(1, round(chunk_s * frame.rate_hz)), frame
        while len(rest.data) > step:
            head, rest = rest.split(step)
            yield head
        yield rest


@dataclass(slots=True)
class _Heard:
    """What the pool said, the times of its rows, and the words among it."""

    waiting: list[Encoded] = field(default_factory=list)
    times: list[tuple[float, float]] = field(default_factory=list)
    words: str = ""

    def add(self, key: ClipKey, num_ticks: int, output: Output, final: bool) -> None:
        """Take an output; the pool's `on_output`."""
        self.waiting.append(Encoded(key=key, num_ticks=num_ticks, output=output, final=final))
        self.words += output.text
        for rows in output.rows:
            starts = [rows.start_s + i * rows.step_s for i in range(len(rows.values))]
            self.times += [(start, start + rows.step_s) for start in starts]

    def tell(self, pool: EncoderPool[ClipKey], slots: Clips) -> None:
        """Encode what is ready and put it into slots. Raises CoreError for a clip's problem."""
        events: list[EngineEvent] = []
        while self.waiting or pool.run_once():
            waiting, self.waiting = self.waiting, []
            for encoded in waiting:
                events += slots.hear(encoded)
        for event in events:
            if isinstance(event, SpanClosed) and event.problem is not None:
                raise CoreError(event.problem)


def _media(span_id: SpanId, frame: MediaFrame) -> AppendMedia:
    return AppendMedia(
        sequence_id=ONE,
        span_id=span_id,
        pts=frame.pts,
        shape=frame.data.shape,
        dtype="uint8" if frame.data.dtype == "uint8" else "float32",
        data=frame.data.tobytes(),
    )


def _tensors(record: _Record, times: Sequence[tuple[float, float]]) -> dict[str, Tensor]:
    tensors = {"input_ids": torch.tensor(record.ids, dtype=torch.int64)}
    if record.rows:
        tensors |= {
            "rows": torch.cat(record.rows),
            "row_positions": torch.tensor(record.positions, dtype=torch.int64),
            "start_s": torch.tensor([start for start, _ in times], dtype=torch.float64),
            "end_s": torch.tensor([end for _, end in times], dtype=torch.float64),
        }
    return tensors
