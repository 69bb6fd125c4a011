"""The driver of a session: everything is carried out, and nothing is left behind."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from app_rig import LoudnessDetector, fake_engine
from fakes import MODEL, SEEING_MODEL, FakeEngine, MemoryTransport
from media_files import noise, picture_file
from PIL import Image
from tiny_text import tiny_prompt

from sensorium.core.api import AppendMedia, OpenSpan
from sensorium.gateway import connection as connection_module
from sensorium.gateway.activity import ActivityPool
from sensorium.gateway.client_events import (
    AppendAudio,
    ClientEvent,
    CreateItem,
    CreateResponse,
    UpdateSession,
)
from sensorium.gateway.connection import Connection
from sensorium.gateway.items import Item, PicturePart, TextPart
from sensorium.gateway.metrics import Metrics
from sensorium.gateway.ports import TransportClosed
from sensorium.gateway.server_events import (
    ErrorRaised,
    ItemDone,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ServerEvent,
    SessionCreated,
    SpeechStarted,
)
from sensorium.gateway.session import Session
from sensorium.gateway.settings import GatewaySettings, SessionSettings

HELLO = CreateItem(item=Item(item_id="", role="user", content=(TextPart(text="hello"),)))


@dataclass
class Line:
    """A connection under test with both its ends."""

    connection: Connection
    transport: MemoryTransport
    engine: FakeEngine
    session: Session
    metrics: Metrics
    running: "asyncio.Task[None]"


@asynccontextmanager
async def line(
    engine: FakeEngine | None = None,
    *,
    session_type: type[Session] = Session,
    transport: MemoryTransport | None = None,
    gateway: GatewaySettings | None = None,
    settings: SessionSettings | None = None,
) -> AsyncIterator[Line]:
    """Run a connection; at the end its peer hangs up and all its sequences must be closed."""
    engine, transport = engine or fake_engine(), transport or MemoryTransport()
    pool: ActivityPool[Any] = ActivityPool(LoudnessDetector())
    metrics = Metrics(engine)
    session = session_type(
        model=engine.info or MODEL,
        prompt=tiny_prompt(),
        settings=settings or SessionSettings(),
        new_sequence_id=engine.new_sequence_id,
        now=asyncio.get_running_loop().time(),
        clock_unix=0.0,
    )
    connection = Connection(
        session=session,
        transport=transport,
        engine=engine,
        activity=pool,
        metrics=metrics,
        settings=gateway or GatewaySettings(),
    )
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        scoring = group.create_task(pool.run())
        running = group.create_task(connection.run())
        yield Line(connection, transport, engine, session, metrics, running)
        transport.hang_up()
        await running
        scoring.cancel()
    assert engine.sequences == {}


async def rounds(count: int) -> None:
    """Let everything else run for a while."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_text_is_answered() -> None:
    async with line() as peer:
        await peer.transport.next(SessionCreated)
        peer.transport.push(HELLO, CreateResponse())
        done = await peer.transport.next(ResponseDone)
    assert done.response.status == "completed"
    deltas = [event.text for event in peer.transport.sent if isinstance(event, OutputTextDelta)]
    assert "".join(deltas) == peer.engine.reply


async def test_sound_is_scored_and_starts_a_turn() -> None:
    loud = np.full(24_000, 8000, "<i2").tobytes()
    async with line() as peer:
        peer.transport.push(*[AppendAudio(data=loud[i : i + 960]) for i in range(0, 48_000, 960)])
        await peer.transport.next(SpeechStarted)


async def test_peer_that_vanishes_mid_response_ends_everything_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = fake_engine()
    engine.held = True
    async with line(engine) as peer:
        peer.transport.push(HELLO, CreateResponse())
        await peer.transport.next(OutputTextDelta)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


async def test_busy_engine_delays_the_response() -> None:
    async with line() as peer:
        await peer.transport.next(SessionCreated)
        peer.engine.busy = True
        peer.transport.push(HELLO, CreateResponse())
        await peer.transport.next(ResponseCreated)
        peer.engine.busy = False
        done = await peer.transport.next(ResponseDone)
    assert done.response.status == "completed"


async def test_lost_engine_fails_the_response_not_the_session() -> None:
    engine = fake_engine()
    engine.held = True
    async with line(engine) as peer:
        peer.transport.push(HELLO, CreateResponse())
        await peer.transport.next(OutputTextDelta)
        engine.lose()
        failed = await peer.transport.next(ResponseDone)
        engine.info, engine.held = MODEL, False
        peer.transport.push(CreateResponse())
        completed = await peer.transport.next(ResponseDone)
    assert b'sequences_failed_total{code="engine_lost"} 1.0' in peer.metrics.render()
    assert (failed.response.status, completed.response.status) == ("failed", "completed")


async def test_shut_down_tells_the_peer_and_closes() -> None:
    async with line() as peer:
        await peer.transport.next(SessionCreated)
        peer.connection.shut_down(1012, "server_shutting_down", "Bye.")
        error = await peer.transport.next(ErrorRaised)
        assert await peer.transport.wait_closed() == (1012, "server_shutting_down")
        await peer.running
    assert (error.code, error.close_code) == ("server_shutting_down", 1012)


async def test_timer_ends_a_session_that_expires() -> None:
    async with line(settings=SessionSettings(max_session_s=1.0)) as peer:
        error = await peer.transport.next(ErrorRaised)
        await peer.transport.wait_closed()
    assert error.code == "session_expired"


async def test_fault_of_ours_ends_the_session_with_1011(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Session):
        def receive(self, event: ClientEvent, now: float) -> None:
            if isinstance(event, UpdateSession):
                raise ZeroDivisionError("a fault")
            super().receive(event, now)

    async with line(session_type=Faulty) as peer:
        peer.transport.push(HELLO, CreateResponse())
        await peer.transport.next(ResponseCreated)
        peer.transport.push(UpdateSession(changes={}))
        error = await peer.transport.next(ErrorRaised)
        assert (await peer.transport.wait_closed())[0] == 1011
        await peer.running
    assert (error.code, error.is_ours) == ("internal_error", True)
    assert "a fault" in caplog.text
    assert peer.session.session_id in caplog.text


async def test_event_that_cannot_be_written_ends_the_session_with_1011() -> None:
    class Unwritable(MemoryTransport):
        async def send(self, event: ServerEvent) -> None:
            if isinstance(event, ResponseCreated):
                raise ValueError("no such event")
            await super().send(event)

    async with line(transport=Unwritable()) as peer:
        peer.transport.push(HELLO, CreateResponse())
        assert (await peer.transport.wait_closed())[0] == 1011
        await peer.running


async def test_peer_that_reads_slowly_gets_longer_deltas() -> None:
    engine = fake_engine(reply="word " * 50)
    async with line(engine) as peer:
        await peer.transport.next(SessionCreated)
        peer.transport.stall()
        peer.transport.push(HELLO, CreateResponse())
        await rounds(500)
        peer.transport.resume()
        done = await peer.transport.next(ResponseDone)
    deltas = [event for event in peer.transport.sent if isinstance(event, OutputTextDelta)]
    assert done.response.status == "completed"
    assert [delta.text for delta in deltas] == [engine.reply]


async def test_peer_that_does_not_read_is_closed() -> None:
    async with line(gateway=GatewaySettings(max_send_s=0.1)) as peer:
        await peer.transport.next(SessionCreated)
        peer.transport.stall()
        peer.transport.push(HELLO)
        assert await peer.transport.wait_closed() == (1008, "slow_client")
        await peer.running


async def test_peer_with_too_much_waiting_is_closed_before_the_deadline() -> None:
    class Chatty(Session):
        def events_to_send(self) -> list[ServerEvent]:
            long = [
                OutputTextDelta(response_id=f"r{i}", item_id="i", output_index=0, text="x" * 1000)
                for i in range(50)
            ]
            return [*super().events_to_send(), *long]

    async with line(session_type=Chatty, gateway=GatewaySettings(max_outgoing_kib=64)) as peer:
        assert await peer.transport.wait_closed() == (1008, "slow_client")
        await peer.running


async def test_reading_pauses_while_the_session_is_full_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(Session):
        def wants_input(self) -> bool:
            return False

    monkeypatch.setattr(connection_module, "MAX_PAUSE_S", 0.05)
    async with line(session_type=Full) as peer:
        await peer.transport.next(SessionCreated)
        peer.transport.push(HELLO, CreateResponse())
        assert peer.engine.requests == []
        await peer.transport.next(ResponseDone)


async def test_transport_closed_while_sending_is_a_normal_end() -> None:
    class Gone(MemoryTransport):
        async def send(self, event: ServerEvent) -> None:
            raise TransportClosed

    async with line(transport=Gone()) as peer:
        await peer.running


# --- files ----------------------------------------------------------------------------------------


def seeing_engine() -> FakeEngine:
    engine = fake_engine()
    engine.info = SEEING_MODEL
    return engine


def show(data: bytes, event_id: str | None = None) -> CreateItem:
    item = Item(item_id="shown", role="user", content=(PicturePart(data=data),))
    return CreateItem(item=item, event_id=event_id)


def decoders() -> set[int]:
    """Return the processes that decode files for this one: children of a warm server of its own.

    Other tests' servers have children as well.
    """
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    ours = {pid for pid, parent in parents.items() if parent == os.getpid() and is_warm(pid)}
    return {pid for pid, parent in parents.items() if parent in ours}


def is_warm(pid: int) -> bool:
    try:
        return b"decode_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return False


async def until(holds: Callable[[], bool]) -> None:
    """Wait for other processes; `line` does so for 10 s at most."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)  # between two looks at other processes
    raise TimeoutError


async def test_picture_is_decoded_beside_the_session_and_seen_by_the_answer() -> None:
    pixels = noise(56, 84)
    async with line(seeing_engine()) as peer:
        peer.transport.push(show(picture_file(Image.fromarray(pixels), "png")), CreateResponse())
        peer.transport.push(HELLO)
        done = [await peer.transport.next(ItemDone) for _ in range(2)]
        assert [event.item.item_id == "shown" for event in done] == [False, True]
        answered = await peer.transport.next(ResponseDone)
    assert answered.response.status == "completed"
    assert answered.response.usage is not None
    assert answered.response.usage.input_image_tokens == 2 * 3 + 2
    requests = peer.engine.requests
    [span] = [r for r in requests if isinstance(r, OpenSpan)]
    [sent] = [r for r in requests if isinstance(r, AppendMedia)]
    assert (span.modality, span.span_id) == ("image", sent.span_id)
    np.testing.assert_array_equal(np.frombuffer(sent.data, np.uint8).reshape(56, 84, 3), pixels)


async def test_bad_file_is_told_and_the_session_goes_on() -> None:
    async with line(seeing_engine()) as peer:
        peer.transport.push(show(b"what is this?", "ev1"), CreateResponse())
        error = await peer.transport.next(ErrorRaised)
        done = await peer.transport.next(ResponseDone)
    assert (error.code, error.event_id) == ("unsupported_format", "ev1")
    assert error.param == "item.content[0]"
    assert done.response.status == "completed"


@pytest.mark.parametrize("ending", ["peer", "server"])
async def test_session_that_ends_while_a_file_is_decoded_leaves_nothing_behind(
    ending: str,
) -> None:
    large = picture_file(Image.new("RGB", (6000, 6000)), "png", compress_level=1)
    async with line(seeing_engine()) as peer:
        before = asyncio.all_tasks()
        peer.transport.push(show(large), CreateResponse())
        await peer.transport.next(ResponseCreated)
        await until(lambda: bool(decoders()))
        for pid in decoders():
            os.kill(pid, signal.SIGSTOP)  # it would take for ever
        if ending == "peer":
            peer.transport.hang_up()
        else:
            peer.connection.shut_down(1012, "server_shutting_down", "Bye.")
        await peer.running
        assert asyncio.all_tasks() <= before
        await until(lambda: not decoders())
    assert not [r for r in peer.engine.requests if isinstance(r, OpenSpan)]


async def test_fault_of_a_decoder_ends_the_session_with_1011(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with line(seeing_engine()) as peer:
        peer.transport.push(
            CreateItem(
                item=Item(
                    item_id="",
                    role="user",
                    content=(PicturePart(data=b"x", detail="fine"),),  # type: ignore[arg-type]  # a fault of ours
                )
            )
        )
        assert (await peer.transport.wait_closed())[0] == 1011
        await peer.running
    assert "detail must be low, high or auto" in caplog.text
