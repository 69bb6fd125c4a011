"""What the loop makes of requests and of what the encoders hear, driven by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread

import numpy as np
from fake_encoder import RATE_HZ, ScriptedEncoder
from fakes import MODEL, FakeTokenizer
from stub_engine import ENDLESS, FAULTY, StubEngine

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    CloseSequence,
    CloseSpan,
    EngineEvent,
    EngineLoad,
    EngineRequest,
    Failed,
    Generate,
    Generated,
    Heard,
    Interrupt,
    OpenSequence,
    OpenSpan,
    Progress,
    Rollback,
    SamplingParams,
    SequenceId,
    SpanClosed,
    SpanId,
    TurnEnded,
    Usage,
)
from sensorium.core.loop import EngineLoop, LoadedModels
from sensorium.encoders.base import ClipHints

ONE, TWO = SequenceId(1), SequenceId(2)
SECOND = np.zeros(RATE_HZ, np.float32).tobytes()


@dataclass
class Rig:
    """The loop over a stub engine and scripted ears; `published` is one list per message."""

    engine: StubEngine = field(default_factory=StubEngine)
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    published: list[list[EngineEvent | EngineLoad]] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        models = LoadedModels(
            engine=self.engine,
            encoders={"audio": ScriptedEncoder()},
            encode=self.tokenizer.encode,
            info=MODEL,
        )
        self.loop = EngineLoop(
            models,
            publish=lambda events: self.published.append([*events]),
            clock=lambda: self.now,
        )
        self.submit(OpenSequence(sequence_id=ONE), OpenSequence(sequence_id=TWO))

    @property
    def events(self) -> list[EngineEvent | EngineLoad]:
        return [event for message in self.published for event in message]

    def submit(self, *requests: EngineRequest) -> None:
        for request in requests:
            self.loop.receive(request)
        self.loop.turn()

    def listen(self) -> None:
        while self.loop.pool.run_once() or self.loop.turn():
            pass

    def speak(self, sequence_id: SequenceId, span: int, seconds: int = 1, prompt: str = "") -> None:
        self.submit(
            OpenSpan(sequence_id=sequence_id, span_id=SpanId(span), hints=ClipHints(prompt=prompt)),
            *(
                AppendMedia(
                    sequence_id=sequence_id,
                    span_id=SpanId(span),
                    pts=second * RATE_HZ,
                    shape=(RATE_HZ,),
                    data=SECOND,
                )
                for second in range(seconds)
            ),
        )

    def close(self, sequence_id: SequenceId, span: int) -> None:
        self.submit(CloseSpan(sequence_id=sequence_id, span_id=SpanId(span)))

    def closed_spans(self) -> list[tuple[int, int]]:
        return [(e.sequence_id, e.span_id) for e in self.events if isinstance(e, SpanClosed)]


def test_settled_words_go_into_slots_before_the_clip_ends() -> None:
    rig = Rig()
    rig.speak(ONE, 1, seconds=3)
    rig.listen()
    progress, heard = rig.events
    assert progress == Progress(sequence_id=ONE, span_id=SpanId(1), num_ticks=3 * RATE_HZ)
    assert isinstance(heard, Heard)
    assert (heard.text, heard.pending) == ("word0 word1", " …")
    assert rig.tokenizer.decode(rig.engine.slots[ONE, SpanId(1)]) == "word0 word1"
    assert tuple(rig.engine.slots[ONE, SpanId(1)]) == heard.token_ids
    assert rig.engine.finished == []


def test_a_closed_clip_says_all_that_was_heard() -> None:
    rig = Rig()
    rig.speak(ONE, 1, seconds=2)
    rig.listen()
    rig.close(ONE, 1)
    rig.listen()
    assert rig.engine.finished == [(ONE, SpanId(1))]
    assert rig.events[-1] == SpanClosed(
        sequence_id=ONE,
        span_id=SpanId(1),
        num_positions=2,
        transcript="word0 word1",
        token_ids=tuple(rig.engine.slots[ONE, SpanId(1)]),
        language="en",
        problem=None,
    )


def test_pending_words_are_published_once_each() -> None:
    rig = Rig()
    rig.speak(ONE, 1, seconds=1)
    rig.listen()
    heard = [event for event in rig.events if isinstance(event, Heard)]
    assert [(event.text, event.pending) for event in heard] == [("", "…")]
    rig.close(ONE, 1)
    rig.listen()
    heard = [event for event in rig.events if isinstance(event, Heard)]
    assert [(event.text, event.pending) for event in heard] == [("", "…"), ("word0", "")]


def test_a_clip_that_fails_closes_with_its_problem() -> None:
    rig = Rig()
    rig.speak(ONE, 1, prompt="poison")
    rig.listen()
    closed = rig.events[-1]
    assert isinstance(closed, SpanClosed)
    assert closed.problem == "The encoder failed on this clip."
    assert (closed.num_positions, closed.transcript) == (0, "")
    assert rig.engine.finished == [(ONE, SpanId(1))]


def test_a_modality_without_encoder_closes_with_its_problem() -> None:
    rig = Rig()
    rig.submit(OpenSpan(sequence_id=ONE, span_id=SpanId(1), modality="video"))
    rig.listen()
    closed = rig.events[-1]
    assert isinstance(closed, SpanClosed)
    assert closed.problem is not None


def test_rollback_drops_the_clips_after_it() -> None:
    rig = Rig()
    rig.speak(ONE, 1)
    rig.close(ONE, 1)
    rig.speak(ONE, 2)
    rig.speak(TWO, 2)
    rig.submit(Rollback(sequence_id=ONE, keep_through=SpanId(1)))
    for sequence_id, span in ((ONE, 2), (TWO, 2)):
        rig.close(sequence_id, span)
    rig.listen()
    assert sorted(rig.closed_spans()) == [(1, 1), (2, 2)]


def test_closing_a_sequence_drops_its_clips() -> None:
    rig = Rig()
    rig.speak(ONE, 1)
    rig.submit(CloseSequence(sequence_id=ONE))
    rig.close(ONE, 1)
    rig.listen()
    assert rig.closed_spans() == []


def test_a_failed_sequence_drops_its_clips() -> None:
    rig = Rig()
    rig.speak(ONE, 2)
    sampling = SamplingParams(max_tokens=FAULTY)
    rig.submit(Generate(sequence_id=ONE, span_id=SpanId(1), sampling=sampling))
    rig.close(ONE, 2)
    rig.listen()
    assert [type(event) for event in rig.events] == [Failed]


def test_an_interrupt_drops_what_waited_behind_but_not_what_came_after() -> None:
    rig = Rig()
    sampling = SamplingParams(max_tokens=ENDLESS)
    rig.submit(Generate(sequence_id=ONE, span_id=SpanId(1), sampling=sampling))
    rig.speak(ONE, 2)
    rig.engine.interrupted = [
        TurnEnded(
            sequence_id=ONE,
            span_id=SpanId(1),
            reason="interrupted",
            usage=Usage(num_prompt_tokens=1, num_uncached_tokens=0, num_output_tokens=1),
        )
    ]
    rig.loop.receive(Interrupt(sequence_id=ONE))
    rig.speak(ONE, 3)
    for span in (2, 3):
        rig.close(ONE, span)
    rig.listen()
    assert rig.closed_spans() == [(1, 3)]


def test_one_turn_is_one_message() -> None:
    rig = Rig()
    rig.submit(
        AppendTokens(sequence_id=ONE, span_id=SpanId(1), token_ids=(7,)),
        Generate(sequence_id=ONE, span_id=SpanId(2)),
        Generate(sequence_id=TWO, span_id=SpanId(2)),
    )
    (message,) = rig.published
    assert [type(event) for event in message] == [Generated, TurnEnded] * 2


def test_load_is_reported_while_sequences_are_open_and_once_after() -> None:
    rig = Rig()
    rig.speak(ONE, 1)
    rig.now = 3.0
    rig.loop.report()
    rig.loop.report()
    rig.submit(CloseSequence(sequence_id=ONE), CloseSequence(sequence_id=TWO))
    rig.loop.report()
    rig.now = 9.0
    rig.loop.report()
    loads = [event for event in rig.events if isinstance(event, EngineLoad)]
    assert [(load.num_sequences, load.encoder_lag_s) for load in loads] == [(2, 3.0), (0, 0.0)]


def test_load_is_reported_though_nothing_more_comes() -> None:
    """A sequence that opens just after the last one's end is told of a second later."""
    loads: SimpleQueue[int] = SimpleQueue()

    def publish(events: Sequence[EngineEvent | EngineLoad]) -> None:
        for event in events:
            if isinstance(event, EngineLoad):
                loads.put(event.num_sequences)

    models = LoadedModels(
        engine=StubEngine(), encoders={}, encode=FakeTokenizer().encode, info=MODEL
    )
    loop = EngineLoop(models, publish=publish)
    thread = Thread(target=loop.run)
    thread.start()
    try:
        loop.receive(OpenSequence(sequence_id=ONE))
        assert loads.get(timeout=10) == 1
        loop.receive(CloseSequence(sequence_id=ONE))
        assert loads.get(timeout=10) == 0
        loop.receive(OpenSequence(sequence_id=TWO))
        assert loads.get(timeout=10) == 1
    finally:
        loop.stop()
        thread.join()


def test_nothing_to_do_is_said() -> None:
    rig = Rig()
    assert not rig.loop.turn()
    assert rig.published == []
