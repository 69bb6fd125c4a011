"""The engine's side of the socket, served in a thread; the gateway's end is the test."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import stub_engine

from sensorium.core import ipc
from sensorium.core.api import (
    Closed,
    CloseSequence,
    EngineLoad,
    Generate,
    OpenSequence,
    SamplingParams,
    SequenceId,
    SpanId,
)
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.loop import LoadedModels
from sensorium.core.process import serve

ONE = SequenceId(1)
Message = TypeVar("Message", bound=ipc.Message)
START = ipc.Start(models=ModelsConfig(), engine=EngineConfig())


class Served:
    """A served socket: our end of it, and what `serve` returned once joined."""

    def __init__(self, load: object = stub_engine.load) -> None:
        self.socket, theirs = socket.socketpair()
        self.channel = ipc.Channel(self.socket)
        self.result: list[bool] = []
        self._thread = threading.Thread(
            target=lambda: self.result.append(serve(theirs, load))  # type: ignore[arg-type] # any load
        )
        self._thread.start()

    def join(self) -> bool:
        self._thread.join()
        return self.result[0]

    def receive(self, kind: type[Message]) -> Message:
        """Return the next frame's only message, which must be of this kind."""
        received = self.channel.receive()
        assert received is not None
        (message,) = received
        assert isinstance(message, kind)
        return message


@pytest.fixture
def served() -> Iterator[Served]:
    engine = Served()
    engine.channel.send([START])
    engine.receive(ipc.Ready)
    yield engine
    engine.channel.close()
    engine.join()


def test_stop_ends_it(served: Served) -> None:
    served.channel.send([ipc.Stop()])
    assert served.join()
    assert served.channel.receive() is None


def test_the_death_of_the_gateway_ends_it(served: Served) -> None:
    served.channel.close()
    assert served.join()


def test_the_death_of_the_gateway_during_a_generation_ends_it(served: Served) -> None:
    endless = SamplingParams(max_tokens=stub_engine.ENDLESS)
    served.channel.send(
        [
            OpenSequence(sequence_id=ONE),
            Generate(sequence_id=ONE, span_id=SpanId(1), sampling=endless),
        ]
    )
    assert served.channel.receive()
    served.channel.close()
    assert served.join()


def test_garbage_ends_it_with_a_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.socket.sendall(b"\x08\x00\x00\x00\x00\x00\x00\x00" + b"\xff" * 8)
    assert served.join()
    assert "sent no request" in caplog.text


def test_a_broken_step_loses_the_engine(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    broken = SamplingParams(max_tokens=stub_engine.BROKEN)
    served.channel.send(
        [
            OpenSequence(sequence_id=ONE),
            Generate(sequence_id=ONE, span_id=SpanId(1), sampling=broken),
        ]
    )
    assert not served.join()
    assert "broken step" in caplog.text


def test_a_sequence_is_served_and_its_load_reported(served: Served) -> None:
    served.channel.send([OpenSequence(sequence_id=ONE)])
    assert served.receive(EngineLoad).num_sequences == 1
    served.channel.send([CloseSequence(sequence_id=ONE)])
    assert served.receive(Closed) == Closed(sequence_id=ONE)
    assert served.receive(EngineLoad).num_sequences == 0


def test_models_that_fail_to_load_are_told() -> None:
    def load(models: ModelsConfig, engine: EngineConfig) -> LoadedModels:
        raise ZeroDivisionError("no such luck")

    engine = Served(load)
    engine.channel.send([START])
    assert engine.channel.receive() == [
        ipc.StartFailed(
            kind="CoreError",
            message="the engine failed to start: ZeroDivisionError: no such luck",
        )
    ]
    assert not engine.join()
    engine.channel.close()


def test_a_gateway_that_says_nothing_is_not_served() -> None:
    engine = Served()
    engine.channel.close()
    assert not engine.join()


def test_the_process_leaves_its_end_to_the_gateway() -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, stub_engine.__file__, str(theirs.fileno())]
    process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), cwd=Path(__file__).parent)
    theirs.close()
    channel = ipc.Channel(ours)
    channel.send([START])
    assert channel.receive()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    channel.send([OpenSequence(sequence_id=ONE), CloseSequence(sequence_id=ONE)])
    assert channel.receive()
    channel.close()
    assert process.wait() == 0
