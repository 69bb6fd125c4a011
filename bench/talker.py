"""A talker for benches: one clip at speaking pace through the unmodified `openai` client."""

import asyncio
import base64
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
from numpy.typing import NDArray
from openai import AsyncOpenAI

RATE_HZ = 24_000
PACKET_MS = 20
AFTER_S = 1.2
"""Silence after a clip, so that server VAD sees its end."""

Turns = Literal["server_vad", "manual"]


@dataclass(slots=True)
class Told:
    """What a talker was told. Times are seconds since the clip's first packet was sent."""

    transcripts: list[str] = field(default_factory=list)
    shown: list[tuple[float, str]] = field(default_factory=list)  # all text on screen, each change
    answer: str = ""
    first_token_s: float | None = None  # after the end of the clip's own sound
    statuses: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    completed_at_s: list[float] = field(default_factory=list)
    speech: list[tuple[float, float]] = field(default_factory=list)  # [started, stopped), as told


def read_clip(path: Path, rate_hz: int = RATE_HZ) -> NDArray[np.int16]:
    """Return a recording as mono PCM16 at `rate_hz`."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=rate_hz)
    with av.open(str(path)) as container:
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray().ravel() for frame in frames])


def session_update(turns: Turns, *, respond: bool) -> dict[str, Any]:
    """Return the settings that a talker asks for."""
    vad = {"type": "server_vad", "create_response": respond}
    return {
        "type": "realtime",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": RATE_HZ},
                "transcription": {"model": "default"},
                "turn_detection": vad if turns == "server_vad" else None,
            }
        },
    }


async def talk(
    url: str,
    pcm: NDArray[np.int16],
    *,
    turns: Turns = "server_vad",
    respond: bool = False,
    pace: float = 1.0,
    patience_s: float = 30.0,
) -> Told:
    """Say a clip and wait until all that was committed is transcribed (and answered)."""
    told = Told()
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="unused")
    query = {"live_transcripts": "true"}
    async with client.realtime.connect(model="default", extra_query=query) as connection:
        await connection.session.update(session=session_update(turns, respond=respond))  # type: ignore[arg-type]  # plain dicts are what the client sends
        listener = _Listener(told, respond=respond, clip_s=len(pcm) / RATE_HZ)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(listener.read(connection))
            await _say(connection, pcm, listener, turns=turns, pace=pace)
            try:
                async with asyncio.timeout(patience_s):
                    await listener.finished.wait()
            except TimeoutError:
                told.errors.append("timeout")
            reading.cancel()
    return told


async def _say(
    connection: Any, pcm: NDArray[np.int16], listener: "_Listener", *, turns: Turns, pace: float
) -> None:
    await listener.configured.wait()
    size = RATE_HZ * PACKET_MS // 1000
    if turns == "server_vad":
        pcm = np.concatenate([pcm, np.zeros(int(AFTER_S * RATE_HZ), np.int16)])
    listener.started_at = time.monotonic()
    for number, start in enumerate(range(0, len(pcm), size)):
        due = listener.started_at + number * PACKET_MS / 1000 / pace
        if (delay := due - time.monotonic()) > 0:
            await asyncio.sleep(delay)
        packet = base64.b64encode(pcm[start : start + size].tobytes()).decode()
        await connection.input_audio_buffer.append(audio=packet)
    if turns == "manual":
        await connection.input_audio_buffer.commit()
    listener.all_sent()


class _Listener:
    def __init__(self, told: Told, *, respond: bool, clip_s: float) -> None:
        self.configured = asyncio.Event()
        self.finished = asyncio.Event()
        self.started_at = 0.0
        self._told = told
        self._respond = respond
        self._clip_s = clip_s
        self._text: dict[str, str] = {}
        self._pending: dict[str, str] = {}
        self._open: set[str] = set()
        self._answers = 0
        self._speech_from = 0.0
        self._sent = False

    def all_sent(self) -> None:
        """No more sound comes: what is open now is what is waited for."""
        self._sent = True
        self._look()

    async def read(self, connection: Any) -> None:
        """Take events until cancelled."""
        async for event in connection:
            self._take(event)

    def _take(self, event: Any) -> None:
        told, now = self._told, time.monotonic() - self.started_at
        match event.type:
            case "session.updated":
                self.configured.set()
            case "input_audio_buffer.speech_started":
                self._open.add(event.item_id)
                self._speech_from = now
            case "input_audio_buffer.speech_stopped":
                told.speech.append((self._speech_from, now))
            case "input_audio_buffer.committed":
                self._open.add(event.item_id)
            case "conversation.item.input_audio_transcription.delta":
                self._text[event.item_id] = self._text.get(event.item_id, "") + event.delta
                self._show(now)
            case "conversation.item.input_audio_transcription.partial":
                self._pending[event.item_id] = event.text
                self._show(now)
            case "conversation.item.input_audio_transcription.completed":
                told.transcripts.append(event.transcript)
                told.completed_at_s.append(now)
                self._text[event.item_id] = event.transcript
                self._pending.pop(event.item_id, None)
                self._show(now)
                self._open.discard(event.item_id)
                self._answers += bool(self._respond and event.transcript)
            case "conversation.item.input_audio_transcription.failed":
                told.failures.append(event.error.message)
                self._open.discard(event.item_id)
            case "response.output_text.delta":
                if told.first_token_s is None:
                    told.first_token_s = now - self._clip_s
                told.answer += event.delta
            case "response.done":
                told.statuses.append(event.response.status)
                self._answers -= 1
            case "error":
                told.errors.append(f"{event.error.code}: {event.error.message}")
        self._look()

    def _show(self, now: float) -> None:
        text = " ".join(self._text[i] + self._pending.get(i, "") for i in self._text)
        self._told.shown.append((now, text))

    def _look(self) -> None:
        if self._sent and not self._open and self._answers <= 0:
            self.finished.set()
