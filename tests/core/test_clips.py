"""What stands in the slots of a media span, and what is told of it, given what the encoder says."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from fake_encoder import ScriptedEncoder, ScriptedState
from fakes import FakeTokenizer
from stub_engine import StubEngine

from sensorium.core.api import (
    AppendMedia,
    CloseSpan,
    EngineEvent,
    Heard,
    OpenSpan,
    Progress,
    SequenceId,
    SpanClosed,
    SpanId,
)
from sensorium.core.clips import ClipKey, Clips, Encoded
from sensorium.core.text.grammars import MediaMarks
from sensorium.encoders.base import Output, Rows, Word
from sensorium.encoders.cache import OutputCache
from sensorium.encoders.media import PICTURE_RATE_HZ, Intake, MediaFrame, picture
from sensorium.encoders.pool import EncoderPool

KEY: ClipKey = (SequenceId(1), SpanId(5))
START, PLACEHOLDER, END, SEPARATOR = 901, 902, 903, 904
SOUND = MediaMarks(start=START, placeholder=PLACEHOLDER, end=END)
FILM = MediaMarks(start=START, placeholder=PLACEHOLDER, end=END, separator=SEPARATOR)


class Eye(ScriptedEncoder):
    """Keeps the frames that it is shown and makes one row of each."""

    def __init__(self) -> None:
        intake = Intake(encoder="eye", rate_hz=PICTURE_RATE_HZ, dtype="uint8", shape=(-1, -1, 3))
        super().__init__(intake=intake)
        self.seen: list[MediaFrame] = []

    def push(
        self, frames: list[tuple[MediaFrame, ...]], states: list[ScriptedState]
    ) -> list[Output]:
        self.seen += [frame for run in frames for frame in run]
        return [Output(rows=tuple(rows(0, 1) for _ in run)) for run in frames]


@dataclass
class Rig:
    """Clips of "film"; answers of their encoder are said by hand or `answers` to what is shown."""

    marks: MediaMarks | None = None
    engine: StubEngine = field(default_factory=StubEngine)
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)

    def __post_init__(self) -> None:
        self.eye = Eye()
        encoders = {"film": self.eye}
        self.answers: list[Encoded] = []
        self.pool = EncoderPool[ClipKey](
            encoders,
            on_output=lambda key, num_ticks, output, final: self.answers.append(
                Encoded(key=key, num_ticks=num_ticks, output=output, final=final)
            ),
            cache=OutputCache(2**20),
        )
        marks = {} if self.marks is None else {"film": self.marks}
        self.clips = Clips(self.pool, encoders, self.engine, self.tokenizer.encode, marks)
        self.open()

    def open(self, key: ClipKey = KEY, content: str = "") -> None:
        request = OpenSpan(sequence_id=key[0], span_id=key[1], modality="film", content=content)
        self.clips.open(request)

    def show(self, frame: MediaFrame, key: ClipKey = KEY) -> None:
        """Show a picture to the encoder and hear what the clip comes to."""
        media = AppendMedia(
            sequence_id=key[0],
            span_id=key[1],
            pts=frame.pts,
            shape=frame.data.shape,
            dtype="uint8",
            data=frame.data.tobytes(),
        )
        self.clips.push(media)
        self.clips.close(CloseSpan(sequence_id=key[0], span_id=key[1], content="f" * 64))
        while self.pool.run_once():
            pass

    def hear(self) -> list[EngineEvent]:
        """Take the encoder's answers."""
        answers = self.answers[:]
        self.answers.clear()
        return [event for answer in answers for event in self.clips.hear(answer)]

    def say(
        self, output: Output, *, num_ticks: int = 0, final: bool = False, key: ClipKey = KEY
    ) -> list[EngineEvent]:
        answer = Encoded(key=key, num_ticks=num_ticks, output=output, final=final)
        return self.clips.hear(answer)

    def finish(self, output: Output | None = None) -> SpanClosed:
        closed = self.say(output or Output(), final=True)[-1]
        assert isinstance(closed, SpanClosed)
        return closed

    def slots(self, key: ClipKey = KEY) -> list[str]:
        """Words, marks, and rows by their number as "#1"."""
        names = {START: "<", END: ">", SEPARATOR: "|"}
        return [
            f"#{int(content[0])}"
            if isinstance(content, torch.Tensor)
            else names.get(content) or self.tokenizer.decode([content]).strip()
            for content in self.engine.slots.get(key, [])
        ]


def rows(first: int, count: int, lead: str = "") -> Rows:
    """Rows of four numbers, each row's its own number, counted from `first`."""
    values = torch.arange(first, first + count, dtype=torch.float32)[:, None].repeat(1, 4)
    return Rows(values=values, lead=lead)


def test_sound_as_it_comes_stands_between_one_start_and_one_end() -> None:
    rig = Rig(SOUND)
    rig.say(Output(rows=(rows(0, 2),)))
    assert rig.slots() == ["<", "#0", "#1"]
    rig.say(Output())
    rig.say(Output(rows=(rows(2, 1),)))
    closed = rig.finish(Output(rows=(rows(3, 1),)))
    assert rig.slots() == ["<", "#0", "#1", "#2", "#3", ">"]
    assert (closed.num_positions, closed.transcript, closed.token_ids) == (6, "", ())
    assert rig.engine.finished == [KEY]


@pytest.mark.parametrize("num_answers", [1, 2, 3])
def test_groups_of_a_film_are_divided_and_led_by_their_times(num_answers: int) -> None:
    groups = tuple(rows(2 * n, 2, lead=f"{n}s") for n in range(3))
    rig = Rig(FILM)
    for n in range(num_answers):
        rig.say(Output(rows=groups[3 * n // num_answers : 3 * (n + 1) // num_answers]))
    closed = rig.finish()
    assert rig.slots() == [
        *("<", "0s", "#0", "#1"),
        *("|", "1s", "#2", "#3"),
        *("|", "2s", "#4", "#5", ">"),
    ]
    assert closed.num_positions == len(rig.slots())


def test_rows_without_marks_stand_alone() -> None:
    rig = Rig()
    rig.say(Output(rows=(rows(0, 1, lead="0s"), rows(1, 1))))
    assert rig.finish().num_positions == 3
    assert rig.slots() == ["0s", "#0", "#1"]


@pytest.mark.parametrize("output", [Output(), Output(rows=(rows(0, 0, lead="0s"),))])
def test_a_clip_without_rows_has_no_marks(output: Output) -> None:
    rig = Rig(FILM)
    rig.say(output)
    assert rig.finish().num_positions == 0
    assert rig.slots() == []


def test_words_have_no_marks() -> None:
    rig = Rig(FILM)
    word = Word(text="cat", start_s=0.0, end_s=1.0, probability=0.9)
    (heard,) = rig.say(Output(text=" a cat", words=(word,), pending=" or", language="en"))
    assert isinstance(heard, Heard)
    assert (heard.text, heard.pending, heard.words) == ("a cat", " or", (word,))
    closed = rig.finish(Output(text=" sleeping"))
    assert rig.slots() == ["a", "cat", "sleeping"]
    assert list(closed.token_ids) == rig.engine.slots[KEY]
    assert (closed.transcript, closed.language) == ("a cat sleeping", "en")


def test_words_beside_rows_leave_the_marks_where_they_belong() -> None:
    rig = Rig(SOUND)
    rig.say(Output(text="hello"))
    rig.say(Output(rows=(rows(0, 1),), text="there"))
    assert rig.finish().num_positions == 5
    assert rig.slots() == ["hello", "<", "#0", "there", ">"]


def test_a_problem_ends_what_was_begun() -> None:
    rig = Rig(SOUND)
    rig.say(Output(rows=(rows(0, 1),), language="en"))
    closed = rig.finish(Output(problem="The encoder failed on this clip."))
    assert rig.slots() == ["<", "#0", ">"]
    assert (closed.problem, closed.language) == ("The encoder failed on this clip.", "en")


def test_ticks_are_told_before_what_was_made_of_them() -> None:
    rig = Rig()
    told = rig.say(Output(text="cat"), num_ticks=7, final=True)
    assert [type(event) for event in told] == [Progress, Heard, SpanClosed]
    assert told[0] == Progress(sequence_id=KEY[0], span_id=KEY[1], num_ticks=7)


@pytest.mark.parametrize("ended_by", ["drop", "close"])
def test_what_comes_late_is_ignored(ended_by: str) -> None:
    rig = Rig(SOUND)
    rig.say(Output(rows=(rows(0, 1),)))
    if ended_by == "drop":
        rig.clips.drop(KEY[0], after=SpanId(4))
    else:
        rig.finish()
    before = rig.slots()
    assert rig.say(Output(rows=(rows(1, 1),)), num_ticks=1, final=True) == []
    assert rig.slots() == before


def test_only_later_spans_of_the_sequence_are_dropped() -> None:
    rig = Rig()
    keys = [(SequenceId(1), SpanId(6)), (SequenceId(1), SpanId(7)), (SequenceId(2), SpanId(6))]
    for key in keys:
        rig.open(key)
    rig.clips.drop(SequenceId(1), after=SpanId(5), through=SpanId(6))
    answered = [key for key in (KEY, *keys) if rig.say(Output(), num_ticks=1, key=key)]
    assert answered == [KEY, keys[1], keys[2]]
    assert rig.clips.newest(SequenceId(1)) == 7


PICTURE = picture(np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3), time_s=0.5)


def test_a_picture_arrives_as_it_was_sent() -> None:
    rig = Rig(FILM)
    rig.show(PICTURE)
    (seen,) = rig.eye.seen
    assert (seen.pts, seen.rate_hz) == (500_000, PICTURE_RATE_HZ)
    assert np.array_equal(seen.data, PICTURE.data)
    assert [type(event) for event in rig.hear()] == [Progress, SpanClosed]
    assert rig.slots() == ["<", "#0", ">"]


def test_a_clip_that_was_encoded_before_fills_its_slots_at_once() -> None:
    rig = Rig(FILM)
    rig.show(PICTURE)
    first = rig.hear()
    again: ClipKey = (SequenceId(2), SpanId(1))
    rig.open(again, content="f" * 64)
    assert rig.hear() == []
    assert rig.slots(again) == ["<", "#0"]
    rig.show(PICTURE, again)
    second = rig.hear()
    assert rig.slots(again) == ["<", "#0", ">"]
    assert [type(event) for event in second] == [type(event) for event in first]
    assert len(rig.eye.seen) == 1
