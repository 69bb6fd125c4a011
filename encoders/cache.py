"""What encoders have made of whole clips, kept to be given again: least recently used go first.

The same picture is looked at in every turn of a conversation, and again when a conversation is
taken up; encoding it costs seconds, keeping its rows some megabytes. An entry is found by
everything that its result depends on, and by whose it is.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sensorium.encoders.base import ClipHints, Encoder, Output

MAX_SHARE = 4
"""An entry may take one part in so many of the cache: a long film mustn't push everybody out."""

_OVERHEAD_BYTES = 512
"""Counted for every entry, set of rows and word beside what they hold, so that many empty ones are
bounded too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKey:
    """What the result for a clip depends on.

    `content` is the whole hash of the clip's frames. One tenant's clips are nothing to another.
    """

    tenant: str
    content: str
    modality: str
    encoder: str
    revision: str
    hints: ClipHints | None

    @classmethod
    def of(
        cls, encoder: Encoder[Any], modality: str, hints: ClipHints, *, content: str, tenant: str
    ) -> "CacheKey":
        """Return the key of a clip. Rows depend on the media alone, words on the hints as well."""
        return cls(
            tenant=tenant,
            content=content,
            modality=modality,
            encoder=encoder.name,
            revision=encoder.revision,
            hints=None if encoder.intake.gives_rows else hints,
        )


@dataclass(slots=True)
class Recording:
    """What has been made of one clip so far; nothing once it can't be kept any more.

    A clip with a problem isn't kept, because the next attempt may go well, nor is one above
    `max_bytes`.
    """

    max_bytes: int
    num_bytes: int = _OVERHEAD_BYTES
    _outputs: list[Output] | None = field(default_factory=list)

    def add(self, output: Output) -> None:
        """Add what the next call has made."""
        if self._outputs is None:
            return
        self.num_bytes += _size(output)
        if output.problem is not None or self.num_bytes > self.max_bytes:
            self._outputs = None
            return
        self._outputs.append(output)

    def whole(self) -> Output | None:
        """Return everything as if one call had made it, or None if it can't be kept.

        Rows are copied: they may be views that keep a whole batch's in memory.
        """
        return None if self._outputs is None else _joined(self._outputs)


class OutputCache:
    """Outputs of whole clips within `max_bytes`; 0 keeps nothing. May be used by any thread.

    Everybody gets the same tensors, so nobody may write to them: the engine copies rows into its
    batches.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[CacheKey, tuple[Output, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.num_bytes = 0
        self.num_hits = 0
        self.num_misses = 0

    def recording(self) -> Recording | None:
        """Return an empty recording of a clip, None if nothing is kept."""
        return Recording(self._max_bytes // MAX_SHARE) if self._max_bytes else None

    def find(self, key: CacheKey) -> Output | None:
        """Return what was made of a clip before, None if it isn't here."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.num_misses += 1
                return None
            self._entries.move_to_end(key)
            self.num_hits += 1
            return entry[0]

    def keep(self, key: CacheKey, recording: Recording) -> None:
        """Keep a complete clip, if it can be kept, in the place of those unused for longest."""
        output = recording.whole()
        if output is None or recording.num_bytes > self._max_bytes:
            return
        with self._lock:
            _, former_bytes = self._entries.pop(key, (None, 0))
            self._entries[key] = (output, recording.num_bytes)
            self.num_bytes += recording.num_bytes - former_bytes
            while self.num_bytes > self._max_bytes:
                _, (_, num_bytes) = self._entries.popitem(last=False)
                self.num_bytes -= num_bytes


def _size(output: Output) -> int:
    """Bytes of an output's rows and text, with something for the objects around them."""
    texts = [output.text, *(rows.lead for rows in output.rows), *(w.text for w in output.words)]
    num_objects = len(output.rows) + len(output.words)
    return (
        sum(rows.values.nbytes for rows in output.rows)
        + sum(len(text.encode()) for text in texts)
        + num_objects * _OVERHEAD_BYTES
    )


def _joined(outputs: Sequence[Output]) -> Output:
    return Output(
        rows=tuple(
            replace(rows, values=rows.values.clone()) for output in outputs for rows in output.rows
        ),
        text="".join(output.text for output in outputs),
        words=tuple(word for output in outputs for word in output.words),
        language=next((o.language for o in reversed(outputs) if o.language), None),
        encoder=outputs[-1].encoder if outputs else "",
    )
