"""Any events in any order: whatever was opened is closed, and every sequence is given back."""

from fakes import MODEL, NAMING_MODEL, SEEING_MODEL
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from session_rig import Rig

from sensorium.core.api import ModelInfo
from sensorium.gateway.client_events import (
    AppendPicture,
    CancelResponse,
    ClearAudio,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    UpdateSession,
)
from sensorium.gateway.items import Item, TextPart
from sensorium.gateway.server_events import (
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
)
from sensorium.gateway.settings import SessionSettings


class SessionMachine(RuleBasedStateMachine):
    """A peer that does anything, over an engine that is slow, full, lost and back."""

    @initialize(
        live=st.booleans(),
        model=st.sampled_from([MODEL, SEEING_MODEL, NAMING_MODEL]),
        interleave=st.sampled_from([None, 0.5]),
    )
    def open(self, live: bool, model: ModelInfo, interleave: float | None) -> None:
        limits = SessionSettings(max_turn_s=4, max_output_tokens=64)
        self.rig = Rig(live=live, settings=limits, model=model)
        self.rig.send(UpdateSession(changes={"transcription": {}, "interleave": interleave}))
        self.num_items = 0

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.5]), packet_ms=st.sampled_from([7, 20, 400]))
    def speak(self, seconds: float, packet_ms: int) -> None:
        self.rig.speak(seconds, packet_ms=packet_ms)

    @rule(seconds=st.sampled_from([0.2, 0.8]))
    def fall_silent(self, seconds: float) -> None:
        self.rig.silence(seconds)

    @rule(data=st.sampled_from([b"\x101x1", b"\x201x1", b"\x302x2", b"bad"]))
    def show(self, data: bytes) -> None:
        self.rig.send(AppendPicture(data=data))

    @rule(decoding=st.booleans())
    def hold_the_decoders(self, decoding: bool) -> None:
        self.rig.decoding = decoding
        self.rig.do(lambda: None)

    @rule(text=st.text(max_size=30))
    def write(self, text: str) -> None:
        self.num_items += 1
        item = Item(item_id=f"t{self.num_items}", role="user", content=(TextPart(text=text),))
        self.rig.send(CreateItem(item=item))

    @rule(number=st.integers(1, 5))
    def delete(self, number: int) -> None:
        self.rig.send(DeleteItem(item_id=f"t{number}"))

    @rule(out_of_band=st.booleans(), instructions=st.sampled_from([None, "Be brief."]))
    def ask(self, out_of_band: bool, instructions: str | None) -> None:
        self.rig.send(CreateResponse(out_of_band=out_of_band, instructions=instructions))

    @rule()
    def cancel(self) -> None:
        self.rig.send(CancelResponse())

    @rule()
    def commit(self) -> None:
        self.rig.send(CommitAudio())

    @rule()
    def clear(self) -> None:
        self.rig.send(ClearAudio())

    @rule(
        change=st.sampled_from(
            [
                None,
                {"kind": "server_vad"},
                {"kind": "semantic_vad", "eagerness": "high"},
                {"kind": "server_vad", "interrupt_response": False},
            ]
        )
    )
    def change_turns(self, change: dict[str, object] | None) -> None:
        self.rig.send(UpdateSession(changes={"turn_detection": change}))

    @rule()
    def hold_the_model(self) -> None:
        self.rig.engine.held = True

    @rule()
    def let_the_model_go(self) -> None:
        self.rig.do(self.rig.engine.release)

    @rule()
    def lose_the_engine(self) -> None:
        info = self.rig.engine.info
        self.rig.do(self.rig.engine.lose)
        self.rig.engine.info = info

    @rule(busy=st.booleans())
    def fill_the_engine(self, busy: bool) -> None:
        self.rig.engine.busy = busy

    @rule(seconds=st.sampled_from([0.3, 5.0]))
    def pass_time(self, seconds: float) -> None:
        self.rig.wait(seconds)

    @invariant()
    def deltas_make_the_text(self) -> None:
        for done in self.rig.of(ResponseDone):
            text = "".join(
                delta.text
                for delta in self.rig.of(OutputTextDelta)
                if delta.response_id == done.response.response_id
            )
            assert done.response.output[0].content == (TextPart(text=text),)

    @invariant()
    def nothing_follows_a_done_response(self) -> None:
        done: set[str] = set()
        for event in self.rig.said:
            if isinstance(event, ResponseDone):
                assert event.response.response_id not in done
                done.add(event.response.response_id)
            elif isinstance(event, OutputTextDelta):
                assert event.response_id not in done

    @invariant()
    def items_are_added_before_they_are_done(self) -> None:
        added: set[str] = set()
        for event in self.rig.said:
            if isinstance(event, ItemAdded):
                assert event.item.item_id not in added
                added.add(event.item.item_id)
            elif isinstance(event, ItemDone):
                assert event.item.item_id in added

    def teardown(self) -> None:
        rig = self.rig
        rig.engine.busy = False
        rig.decoding = True
        rig.do(rig.engine.release)
        rig.wait(1.0)
        rig.send(CancelResponse())
        created = {event.response.response_id for event in rig.of(ResponseCreated)}
        rig.session.transport_closed(rig.now)
        rig.do(lambda: None)
        assert created == {event.response.response_id for event in rig.of(ResponseDone)}
        assert rig.engine.sequences == {}


TestSession = SessionMachine.TestCase
TestSession.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
