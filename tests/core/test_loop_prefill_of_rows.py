"""Sound becomes rows of a tiny Muse while it is spoken: the commit leaves one hop to prefill.

Driven by hand on the media clock: real engine and pool, an encoder with the hop of Muse's audio
tower that draws its rows at random.
"""

from dataclasses import dataclass
from functools import cache

import pytest
import torch
from fakes import MODEL
from muse_checkpoint import cached_tiny_muse
from tiny_model import ids_of, run

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    CloseSpan,
    EngineEvent,
    EngineLoad,
    EngineRequest,
    Generate,
    OpenSequence,
    OpenSpan,
    SamplingParams,
    SequenceId,
    SpanClosed,
    SpanId,
    TurnEnded,
)
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.engine import Engine
from sensorium.core.loop import EngineLoop, LoadedModels
from sensorium.core.runner import Runner, load_runner
from sensorium.encoders.base import ClipHints, Output, Rows
from sensorium.encoders.media import Intake, MediaFrame

ONE = SequenceId(1)
HEAD, SPEECH, TAIL, REPLY = map(SpanId, range(1, 5))
HEAD_IDS, TAIL_IDS = (300, 301, 302), (303, 304)
RATE_HZ, HOP = 24_000, 1_920
WIDTH = 64
CONFIG = EngineConfig(threads=1, cache_mib=64, max_sequences=4, window_slack=16)


@dataclass
class HopState:
    """Samples not yet encoded, and rows made so far."""

    num_left: int = 0
    num_rows: int = 0


class HopEncoder:
    """One row per 80 ms, drawn from a seed that is the row's number; no look-ahead."""

    name = "hop"
    revision = "1"
    intake = Intake(encoder="hop", rate_hz=RATE_HZ, gives_rows=True, ticks_per_row=HOP)
    max_batch = 4

    def open(self, hints: ClipHints) -> HopState:
        """Return a new clip's state."""
        return HopState()

    def ready(self, state: HopState, num_ticks: int) -> bool:
        """Tell whether a hop has come together."""
        return state.num_left + num_ticks >= HOP

    def push(self, frames: list[tuple[MediaFrame, ...]], states: list[HopState]) -> list[Output]:
        """Make a row of each whole hop."""
        for pushed, state in zip(frames, states, strict=True):
            state.num_left += sum(len(frame.data) for frame in pushed)
        return [self._rows(state, state.num_left // HOP) for state in states]

    def anticipate(self, states: list[HopState]) -> None:
        """Nothing can be prepared."""

    def flush(self, states: list[HopState]) -> list[Output]:
        """Pad what is left to a whole hop."""
        return [self._rows(state, -(-state.num_left // HOP)) for state in states]

    def _rows(self, state: HopState, count: int) -> Output:
        rows = spoken_rows(state.num_rows, count)
        state.num_rows += count
        state.num_left -= count * HOP
        return Output(rows=(Rows(values=rows),) if count else (), encoder=self.name)


def spoken_rows(first: int, count: int) -> torch.Tensor:
    """The rows of hops `first` … `first + count`."""
    generator = torch.Generator()
    rows = [
        torch.randn(WIDTH, generator=generator.manual_seed(n)) for n in range(first, first + count)
    ]
    return torch.stack(rows) if rows else torch.empty(0, WIDTH)


@cache
def runner() -> Runner:
    """A tiny Muse with room for ten minutes of sound."""
    folder = cached_tiny_muse(max_positions=8192)
    return load_runner(folder, ModelsConfig(dtype="float32"), CONFIG)


class Rig:
    """The loop without threads and clock; `events` is what the gateway would have got."""

    def __init__(self) -> None:
        self.events: list[EngineEvent | EngineLoad] = []
        self.engine = Engine(runner(), CONFIG)
        models = LoadedModels(
            engine=self.engine,
            encoders={"audio": HopEncoder()},
            encode=lambda text: [],
            info=MODEL,
        )
        self.loop = EngineLoop(models, publish=self.events.extend, clock=lambda: 0.0)

    def submit(self, *requests: EngineRequest) -> None:
        """Hand over requests and let everything come to rest."""
        for request in requests:
            self.loop.receive(request)
        while self.loop.turn() or self.loop.pool.run_once():
            pass

    def speak(self, milliseconds: int, packet_ms: int) -> None:
        """Send packets on the media clock, the last one shorter."""
        for begin in range(0, milliseconds, packet_ms):
            count = min(packet_ms, milliseconds - begin) * RATE_HZ // 1000
            pts, data = begin * RATE_HZ // 1000, bytes(4 * count)
            media = AppendMedia(sequence_id=ONE, span_id=SPEECH, pts=pts, shape=(count,), data=data)
            self.submit(media)
            assert self.engine.num_to_prefill(ONE) == 0


@pytest.mark.parametrize(("seconds", "packet_ms"), [(5, 20), (60, 100), (600, 500)])
def test_one_hop_is_left_to_prefill_at_the_commit(seconds: int, packet_ms: int) -> None:
    rig = Rig()
    rig.submit(
        OpenSequence(sequence_id=ONE),
        AppendTokens(sequence_id=ONE, span_id=HEAD, token_ids=HEAD_IDS),
        OpenSpan(sequence_id=ONE, span_id=SPEECH),
    )
    rig.speak(seconds * 1000 + 60, packet_ms)  # three quarters of a hop are never complete
    for request in (
        CloseSpan(sequence_id=ONE, span_id=SPEECH),
        AppendTokens(sequence_id=ONE, span_id=TAIL, token_ids=TAIL_IDS),
        Generate(sequence_id=ONE, span_id=REPLY, sampling=SamplingParams(max_tokens=3)),
    ):
        rig.loop.receive(request)
    rig.submit()

    (closed,) = [e for e in rig.events if isinstance(e, SpanClosed)]
    (ended,) = [e for e in rig.events if isinstance(e, TurnEnded)]
    num_rows = -(-(seconds * RATE_HZ + 60 * 24) // HOP)
    assert closed.num_positions == num_rows
    assert ended.usage.num_prompt_tokens == len(HEAD_IDS) + num_rows + len(TAIL_IDS)
    assert ended.usage.num_uncached_tokens <= 1 + len(TAIL_IDS)


def test_the_answer_is_that_of_the_same_rows_at_once() -> None:
    rig = Rig()
    rig.submit(
        OpenSequence(sequence_id=ONE),
        AppendTokens(sequence_id=ONE, span_id=HEAD, token_ids=HEAD_IDS),
        OpenSpan(sequence_id=ONE, span_id=SPEECH),
    )
    rig.speak(4000, 20)
    generate = Generate(sequence_id=ONE, span_id=REPLY, sampling=SamplingParams(max_tokens=12))
    rig.submit(CloseSpan(sequence_id=ONE, span_id=SPEECH), generate)

    engine = Engine(runner(), CONFIG)
    engine.submit(OpenSequence(sequence_id=ONE))
    engine.submit(AppendTokens(sequence_id=ONE, span_id=HEAD, token_ids=HEAD_IDS))
    engine.submit(OpenSpan(sequence_id=ONE, span_id=SPEECH))
    engine.extend_span(ONE, SPEECH, spoken_rows(0, 50))
    engine.finish_span(ONE, SPEECH)
    engine.submit(generate)
    events = [e for e in rig.events if not isinstance(e, EngineLoad)]
    assert ids_of(run(engine), ONE) == ids_of(events, ONE) != ()
