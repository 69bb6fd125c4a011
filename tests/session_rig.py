"""Drives a session by hand: a fake engine, a detector of loudness, and a clock that stands."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import TypeVar

import numpy as np
from fakes import MODEL, FakeEngine
from tiny_text import tiny_prompt

from sensorium.core.api import AppendTokens, EngineRequest, ModelInfo
from sensorium.core.text.prompt import Prompt
from sensorium.encoders.media import MediaFrame, picture
from sensorium.gateway.client_events import AppendAudio, ClientEvent
from sensorium.gateway.decoding import decode_file
from sensorium.gateway.media import FileDecoded, FileRefused, FileToDecode, medium
from sensorium.gateway.metrics import Metrics
from sensorium.gateway.sequences import Sequences
from sensorium.gateway.server_events import ServerEvent
from sensorium.gateway.session import InnerEvent, Session
from sensorium.gateway.settings import SessionSettings
from sensorium.gateway.turns import VoiceActivity

Event = TypeVar("Event", bound=ServerEvent)
LOUDNESS = 0.05


class Rig:
    """A session at 24 kHz PCM16 over `FakeEngine(auto=True)`; `said` collects its events.

    Files are decoded at once, or lie in `files` while `decoding` is False.
    """

    def __init__(
        self,
        *,
        settings: SessionSettings | None = None,
        live: bool = False,
        auto: bool = True,
        prompt: Prompt | None = None,
        model: ModelInfo = MODEL,
    ) -> None:
        self.prompt = prompt or tiny_prompt()
        self.engine = FakeEngine(auto=auto, encode=self.prompt.tokenizer.encode_markup)
        self.engine.info = model
        self.engine.reply = "General Kenobi."
        self.now = 100.0
        self.said: list[ServerEvent] = []
        self.asked: list[EngineRequest] = []
        self.files: list[FileToDecode] = []
        self.decoding = True
        self._inbox: list[InnerEvent] = []
        self._sequences = Sequences(
            self.engine, Metrics(self.engine), lambda events: self._inbox.extend(events)
        )
        names: Iterator[int] = count(1)
        self.session = Session(
            model=model,
            prompt=self.prompt,
            settings=settings or SessionSettings(),
            new_sequence_id=self.engine.new_sequence_id,
            now=self.now,
            clock_unix=1_700_000_000.0,
            live_transcripts=live,
            new_id=lambda prefix: f"{prefix}_{next(names)}",
        )
        self._settle()

    def send(self, *events: ClientEvent) -> list[ServerEvent]:
        """Send client events one by one; returns what was said."""
        start = len(self.said)
        for event in events:
            self.session.receive(event, self.now)
            self._settle()
        return self.said[start:]

    def speak(self, seconds: float, *, packet_ms: int = 20) -> list[ServerEvent]:
        """Append a loud tone."""
        return self._append(seconds, LOUDNESS * 4, packet_ms)

    def silence(self, seconds: float, *, packet_ms: int = 20) -> list[ServerEvent]:
        """Append zeros."""
        return self._append(seconds, 0.0, packet_ms)

    def wait(self, seconds: float) -> list[ServerEvent]:
        """Let time pass and call the timer."""
        start = len(self.said)
        self.now += seconds
        self.session.handle_timer(self.now)
        self._settle()
        return self.said[start:]

    def do(self, action: Callable[[], None]) -> list[ServerEvent]:
        """Do something to the engine; returns what was said about it."""
        start = len(self.said)
        action()
        self._settle()
        return self.said[start:]

    def decode(self, file: FileToDecode) -> list[ServerEvent]:
        """Decode one of the files that lie there; returns what was said about it."""
        self.files.remove(file)
        return self.do(lambda: self._inbox.append(self._decoded(file)))

    def of(self, kind: type[Event]) -> list[Event]:
        """Return the events of one kind said so far."""
        return [event for event in self.said if isinstance(event, kind)]

    def prompt_text(self) -> str:
        """Return all text that was appended as tokens, control tokens left out, in order."""
        ids = [r.token_ids for r in self.asked if isinstance(r, AppendTokens)]
        return "".join(self.prompt.tokenizer.decode(tokens) for tokens in ids)

    def _decoded(self, file: FileToDecode) -> FileDecoded | FileRefused:
        """Bare sound is read in earnest; what else is in a file, `show` says."""
        intakes = self.engine.info.intakes if self.engine.info else {}
        if file.modality == "audio":
            return asyncio.run(decode_file(file, intakes))
        if file.data.startswith(b"bad"):
            return FileRefused(number=file.number, code="damaged", message="The file is damaged.")
        eyes = "video" if file.is_frame and "video" in intakes else file.modality
        made = medium(file.modality, shown(file), intakes[eyes])
        return FileDecoded(number=file.number, media=(made,))

    def _append(self, seconds: float, level: float, packet_ms: int) -> list[ServerEvent]:
        samples = level * np.sin(np.arange(int(seconds * 24_000)) * 0.1)
        pcm = (samples * 32767).astype("<i2").tobytes()
        size = packet_ms * 48
        return self.send(*(AppendAudio(data=pcm[i : i + size]) for i in range(0, len(pcm), size)))

    def _settle(self) -> None:
        """Carry requests, windows and events to and fro until nothing moves."""
        while True:
            self.said += self.session.events_to_send()
            requests = self.session.requests_to_submit()
            windows = self.session.windows_to_score()
            verdicts = [
                VoiceActivity(probability=0.9 if np.abs(w).max() > LOUDNESS else 0.01)
                for w in windows
            ]
            self.files += self.session.files_to_decode()
            if self.decoding:
                self._inbox += [self._decoded(file) for file in self.files]
                self.files.clear()
            self.asked += requests
            self._inbox += self._sequences.submit(requests)
            inbox, self._inbox = self._inbox, []
            if not requests and not windows and not inbox:
                return
            self.session.advance([*verdicts, *inbox], self.now)


def shown(file: FileToDecode) -> list[MediaFrame]:
    """Return what the rig makes of a file: of b"a2x3" 2 × 3 cells in a shade of their own, of a
    video four such frames, half a second apart."""
    rows, columns = (int(number) for number in file.data[1:].decode().split("x"))
    pixels = np.full((28 * rows, 28 * columns, 3), file.data[0], np.uint8)
    if file.modality == "image":
        return [picture(pixels)]
    return [picture(pixels + index, index / 2) for index in range(4)]
