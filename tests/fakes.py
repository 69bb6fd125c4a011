"""Stand-ins at the seams: an engine without torch, a transport without a network."""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, assert_never

from sensorium.core.api import (
    Anticipate,
    AppendMedia,
    AppendTokens,
    Closed,
    CloseSequence,
    CloseSpan,
    EngineBusy,
    EngineEvent,
    EngineLoad,
    EngineRequest,
    Failed,
    Generate,
    Generated,
    Heard,
    Interrupt,
    ModelInfo,
    OpenSequence,
    OpenSpan,
    Progress,
    Rollback,
    SequenceId,
    SpanClosed,
    SpanId,
    TokenLogprobs,
    TurnEnded,
    Usage,
)
from sensorium.encoders.base import Word
from sensorium.encoders.media import PICTURE_RATE_HZ, Intake
from sensorium.gateway.client_events import ClientEvent
from sensorium.gateway.ports import TransportClosed
from sensorium.gateway.server_events import ServerEvent

RATE_HZ = 16_000
MODEL = ModelInfo(
    name="fake",
    max_positions=2048,
    dtype="float32",
    speech_languages=("en",),
    intakes={"audio": Intake(encoder="fake-speech", rate_hz=RATE_HZ)},
    capacity=8,
)
ROWS_MODEL = replace(
    MODEL,
    name="fake-rows",
    intakes={
        "audio": Intake(encoder="fake-ears", rate_hz=24_000, gives_rows=True, ticks_per_row=1920)
    },
)
"""A model like Muse: one row per 80 ms of sound at 24 kHz, and no words."""

_EYES = Intake(
    encoder="fake-eyes",
    rate_hz=PICTURE_RATE_HZ,
    dtype="uint8",
    shape=(-1, -1, 3),
    gives_rows=True,
    cell_px=28,
    max_cells=64,
    max_frames=1,
)
_FILM_EYES = replace(
    _EYES, encoder="fake-film-eyes", max_cells=16, fps=2.0, max_frames=8, frames_per_group=2
)
SEEING_MODEL = replace(
    ROWS_MODEL,
    name="fake-seeing",
    intakes={**ROWS_MODEL.intakes, "image": _EYES, "video": _FILM_EYES},
)
"""It also takes pictures and videos, and makes a row of each cell of 28 × 28 px."""
NAMING_MODEL = replace(
    MODEL,
    name="fake-naming",
    intakes={
        **MODEL.intakes,
        "image": replace(_EYES, encoder="fake-labels", gives_rows=False),
        "video": replace(_FILM_EYES, encoder="fake-film-labels", gives_rows=False),
    },
)
"""It takes the same, and all of it becomes words."""

Event = TypeVar("Event", bound=ServerEvent)
EndReason = Literal["stop", "length", "interrupted"]
OnEvents = Callable[[list[EngineEvent]], None]


class FakeTokenizer:
    """One id per word, with the space before it; ids are given out as words are first met.

    `decode(encode(text)) == text`. >>> FakeTokenizer().encode("a b a b") gives [0, 1, 2, 1].
    """

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._words: list[str] = []

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`."""
        return [self._id(word) for word in re.findall(r"\s*\S+|\s+$", text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`; raises IndexError for an id never given out."""
        return "".join(self._words[token_id] for token_id in token_ids)

    def _id(self, word: str) -> int:
        if word not in self._ids:
            self._ids[word] = len(self._words)
            self._words.append(word)
        return self._ids[word]


@dataclass(slots=True)
class _Span:
    """Positions of one span; `num_ticks` of media it was given, `shapes` one by one."""

    span_id: SpanId
    modality: str = "audio"
    num_positions: int = 0
    num_ticks: int = 0
    shapes: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(slots=True)
class _Generation:
    """A generation whose ids have been published up to `position`."""

    request: Generate
    token_ids: list[int]
    usage: Usage
    position: int = 0


@dataclass(slots=True)
class FakeSequence:
    """What FakeEngine knows of one sequence."""

    sequence_id: SequenceId
    on_events: OnEvents
    spans: list[_Span] = field(default_factory=list)
    waiting: deque[EngineRequest] = field(default_factory=deque)
    generation: _Generation | None = None
    num_uncached: int = 0

    @property
    def num_positions(self) -> int:
        """Positions of all spans."""
        return sum(span.num_positions for span in self.spans)


class FakeEngine:
    """An EnginePort without an engine behind it.

    `requests` records everything submitted, `open` included. Scripted by default: a test publishes
    with `emit`. With `auto=True` it is a tiny perfect engine: it hears `transcript` in every clip
    and sees `sight` in every picture, or makes rows of them where `info` says so, and answers every
    `Generate` with `reply`, `chunk` ids per event. With `held=True` a generation stops after its
    first chunk until `release()` or an `Interrupt`.

    Events are handed over by the running event loop's next round, as the real worker does; without
    a running loop at once, inside `submit`.
    """

    def __init__(
        self,
        *,
        auto: bool = False,
        encode: Callable[[str], list[int]] | None = None,
        transcript: str = " hello there",
        sight: str = "a cat",
        reply: str = "General Kenobi, you are a bold one.",
        chunk: int = 2,
    ) -> None:
        self.auto = auto
        self.encode = encode or FakeTokenizer().encode
        self.transcript = transcript
        self.sight = sight
        self.problem: str | None = None
        self.reply = reply
        self.chunk = chunk
        self.held = False
        self.busy = False
        self.info: ModelInfo | None = MODEL
        self.load: EngineLoad | None = None
        self.requests: list[EngineRequest] = []
        self.sequences: dict[SequenceId, FakeSequence] = {}
        self._last_id = 0

    # --- EnginePort -----------------------------------------------------------------------------

    def new_sequence_id(self) -> SequenceId:
        """Return 1, 2, 3, …"""
        self._last_id += 1
        return SequenceId(self._last_id)

    def open(self, sequence_id: SequenceId, on_events: OnEvents) -> None:
        """Open a sequence; EngineBusy if `busy` is set or `info` is None."""
        if self.busy or self.info is None:
            raise EngineBusy("the engine has no room for another sequence")
        self.requests.append(OpenSequence(sequence_id=sequence_id))
        self.sequences[sequence_id] = FakeSequence(sequence_id, on_events)

    def submit(self, request: EngineRequest) -> None:
        """Record the request and, with `auto`, obey it; EngineBusy if `busy` is set."""
        if self.busy:
            raise EngineBusy("the way to the engine is full")
        self.requests.append(request)
        sequence = self.sequences.get(request.sequence_id)
        if sequence is not None and self.auto:
            self._receive(sequence, request)

    # --- the test's side ------------------------------------------------------------------------

    def emit(self, *events: EngineEvent) -> None:
        """Publish events, each to its sequence; those of unknown sequences vanish."""
        for event in events:
            sequence = self.sequences.get(event.sequence_id)
            if sequence is not None:
                self._deliver(sequence.on_events, [event])
            if isinstance(event, Failed | Closed):
                self.sequences.pop(event.sequence_id, None)

    def lose(self, message: str = "the engine stopped unexpectedly and is being restarted") -> None:
        """Die like a killed engine process: every sequence fails and `info` is None."""
        self.info = None
        for sequence_id in list(self.sequences):
            self.emit(Failed(sequence_id=sequence_id, code="engine_lost", message=message))

    def release(self) -> None:
        """Let held generations run to their end, and later ones too."""
        self.held = False
        for sequence in list(self.sequences.values()):
            self._generate(sequence)

    # --- auto -----------------------------------------------------------------------------------

    def _receive(self, sequence: FakeSequence, request: EngineRequest) -> None:
        match request:
            case Interrupt():
                self._interrupt(sequence)
            case Rollback(keep_through=keep):
                self._roll_back(sequence, -1 if keep is None else keep)
            case CloseSequence(sequence_id=sequence_id):
                self.emit(Closed(sequence_id=sequence_id))
            case _:
                sequence.waiting.append(request)
                self._advance(sequence)

    def _interrupt(self, sequence: FakeSequence) -> None:
        """End the running or first waiting generation; what waits behind it is dropped."""
        generations = [r.span_id for r in sequence.waiting if isinstance(r, Generate)]
        if sequence.generation:
            self._drop_after(sequence, sequence.generation.request.span_id, ends_running=True)
        elif generations:
            self._drop_after(sequence, generations[0] - 1, ends_running=False)

    def _roll_back(self, sequence: FakeSequence, keep: int) -> None:
        running = sequence.generation
        ends_running = running is not None and running.request.span_id > keep
        self._drop_after(sequence, keep, ends_running=ends_running)
        sequence.spans = [span for span in sequence.spans if span.span_id <= keep]
        self._advance(sequence)

    def _drop_after(self, sequence: FakeSequence, keep: int, *, ends_running: bool) -> None:
        """Drop what waits of spans after `keep`; generations that end say so."""
        dropped = [r for r in sequence.waiting if getattr(r, "span_id", keep + 1) > keep]
        sequence.waiting = deque(r for r in sequence.waiting if r not in dropped)
        if ends_running:
            self._end(sequence, "interrupted")
        nothing = Usage(num_prompt_tokens=0, num_uncached_tokens=0, num_output_tokens=0)
        for request in dropped:
            if isinstance(request, Generate):
                self._publish_end(request, "interrupted", nothing)

    def _advance(self, sequence: FakeSequence) -> None:
        """Obey waiting requests in order until one has to wait for a generation."""
        while sequence.waiting and sequence.generation is None:
            self._obey(sequence, sequence.waiting.popleft())

    def _obey(self, sequence: FakeSequence, request: EngineRequest) -> None:
        match request:
            case AppendTokens(span_id=span_id, token_ids=token_ids):
                sequence.spans.append(_Span(span_id, num_positions=len(token_ids)))
                sequence.num_uncached = len(token_ids)
            case OpenSpan(span_id=span_id, modality=modality):
                sequence.spans.append(_Span(span_id, modality))
            case AppendMedia(sequence_id=sequence_id, span_id=span_id, shape=shape):
                self._span(sequence, span_id).num_ticks += shape[0]
                self._span(sequence, span_id).shapes.append(shape)
                self.emit(Progress(sequence_id=sequence_id, span_id=span_id, num_ticks=shape[0]))
            case Anticipate():
                pass
            case CloseSpan(span_id=span_id):
                self._close_span(sequence, self._span(sequence, span_id))
            case Generate():
                prompt = Usage(
                    num_prompt_tokens=sequence.num_positions,
                    num_uncached_tokens=sequence.num_uncached,
                    num_output_tokens=0,
                )
                sequence.generation = _Generation(request, self.encode(self.reply), prompt)
                sequence.spans.append(_Span(request.span_id))
                self._generate(sequence)
            case OpenSequence() | Interrupt() | Rollback() | CloseSequence():
                raise AssertionError(f"{request} does not wait its turn")
            case _:
                assert_never(request)

    def _span(self, sequence: FakeSequence, span_id: SpanId) -> _Span:
        return next(span for span in sequence.spans if span.span_id == span_id)

    def _close_span(self, sequence: FakeSequence, span: _Span) -> None:
        intake = self.info.intakes[span.modality] if self.info else None
        words = self.transcript if span.modality == "audio" else self.sight
        text = "" if self.problem or (intake and intake.gives_rows) else words
        token_ids = tuple(self.encode(text))
        span.num_positions = len(token_ids)
        if intake and intake.gives_rows and not self.problem:
            num_rows = _num_rows(span, intake)
            span.num_positions = num_rows + 2 if num_rows else 0  # with the marks around them
        sequence.num_uncached = 0
        heard = Heard(
            sequence_id=sequence.sequence_id,
            span_id=span.span_id,
            text=text,
            pending="",
            words=spread_words(text, span.num_ticks / RATE_HZ),
            token_ids=token_ids,
        )
        closed = SpanClosed(
            sequence_id=sequence.sequence_id,
            span_id=span.span_id,
            num_positions=span.num_positions,
            transcript=text,
            token_ids=token_ids,
            language="en",
            problem=self.problem,
        )
        self.emit(*([heard] if text else []), closed)

    def _generate(self, sequence: FakeSequence) -> None:
        """Publish the running generation chunk by chunk; a held one stops after its first."""
        while generation := sequence.generation:
            limit = min(len(generation.token_ids), generation.request.sampling.max_tokens)
            start = generation.position
            if start == limit:
                self._end(sequence, "stop" if limit == len(generation.token_ids) else "length")
                return
            if self.held and start > 0:
                return
            generation.position = min(start + self.chunk, limit)
            token_ids = tuple(generation.token_ids[start : generation.position])
            count = generation.request.sampling.num_logprobs
            logprobs = () if count is None else tuple(fake_logprobs(i, count) for i in token_ids)
            self.emit(
                Generated(
                    sequence_id=sequence.sequence_id,
                    span_id=generation.request.span_id,
                    token_ids=token_ids,
                    logprobs=logprobs,
                )
            )

    def _end(self, sequence: FakeSequence, reason: EndReason) -> None:
        generation, sequence.generation = sequence.generation, None
        if generation is None:
            return
        self._span(sequence, generation.request.span_id).num_positions = generation.position
        usage = replace(generation.usage, num_output_tokens=generation.position)
        self._publish_end(generation.request, reason, usage)
        self._advance(sequence)

    def _publish_end(self, request: Generate, reason: EndReason, usage: Usage) -> None:
        self.emit(
            TurnEnded(
                sequence_id=request.sequence_id,
                span_id=request.span_id,
                reason=reason,
                usage=usage,
            )
        )

    def _deliver(self, on_events: OnEvents, events: list[EngineEvent]) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            on_events(events)
        else:
            loop.call_soon(on_events, events)


def _num_rows(span: _Span, intake: Intake) -> int:
    """Return what an encoder makes of a span; the times of a video's groups are left out."""
    if span.modality == "audio":
        return span.num_ticks // intake.ticks_per_row
    groups = span.shapes[:: intake.frames_per_group]
    return sum(
        height // intake.cell_px * (width // intake.cell_px) for _, height, width, _ in groups
    )


def fake_logprobs(token_id: int, count: int) -> TokenLogprobs:
    """Return that a token has the logprob -id / 1000, and that the first ids are the likeliest."""
    top = tuple((likely, -likely / 1000) for likely in range(count))
    return TokenLogprobs(logprob=-token_id / 1000, top=top)


def spread_words(text: str, seconds: float) -> tuple[Word, ...]:
    """Return the words of `text`, evenly spread over `seconds`."""
    words = text.split()
    step = seconds / len(words) if words else 0.0
    return tuple(
        Word(text=word, start_s=i * step, end_s=(i + 1) * step, probability=1.0)
        for i, word in enumerate(words)
    )


class MemoryTransport:
    """A Transport whose peer is the test.

    `push` what the client sends, `sent` is what it was sent, `next` waits for an event of a type.
    `closed` is (code, reason) once the server has closed. While `stalled` is cleared by `stall()`
    the peer doesn't read, so `send` waits.
    """

    def __init__(self) -> None:
        self.sent: list[ServerEvent] = []
        self.closed: tuple[int, str] | None = None
        self._incoming: asyncio.Queue[ClientEvent | None] = asyncio.Queue()
        self._changed = asyncio.Condition()
        self._reading = asyncio.Event()
        self._reading.set()
        self._cursor = 0
        self._gone = False

    async def receive(self) -> ClientEvent:
        """Return the next pushed event; TransportClosed after `hang_up` or `close`."""
        event = None if self.closed else await self._incoming.get()
        if event is None:
            self._incoming.put_nowait(None)
            raise TransportClosed
        return event

    async def send(self, event: ServerEvent) -> None:
        """Record the event; waits while stalled; TransportClosed when the peer is gone."""
        await self._reading.wait()
        if self._gone:
            raise TransportClosed
        async with self._changed:
            self.sent.append(event)
            self._changed.notify_all()

    async def close(self, code: int, reason: str) -> None:
        """End the connection; the first code and reason stay."""
        async with self._changed:
            self.closed = self.closed or (code, reason)
            self._changed.notify_all()
        self.hang_up()

    def push(self, *events: ClientEvent) -> None:
        """Send as the client."""
        for event in events:
            self._incoming.put_nowait(event)

    def hang_up(self) -> None:
        """Vanish as the client, after what was pushed."""
        self._gone = True
        self._incoming.put_nowait(None)
        self._reading.set()

    def stall(self) -> None:
        """Stop reading as the client."""
        self._reading.clear()

    def resume(self) -> None:
        """Read again as the client."""
        self._reading.set()

    async def next(self, kind: type[Event]) -> Event:
        """Return the first `kind` after the last one returned; TransportClosed if none comes."""
        async with self._changed:
            while True:
                while self._cursor < len(self.sent):
                    event = self.sent[self._cursor]
                    self._cursor += 1
                    if isinstance(event, kind):
                        return event
                if self.closed:
                    raise TransportClosed
                await self._changed.wait()

    async def wait_closed(self) -> tuple[int, str]:
        """Wait until the server has closed; return code and reason."""
        async with self._changed:
            while self.closed is None:
                await self._changed.wait()
        return self.closed
