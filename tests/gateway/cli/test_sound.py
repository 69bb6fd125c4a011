"""Sound as the wire wants it."""

import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from sensorium.gateway.cli.own_server import CommandError
from sensorium.gateway.cli.sound import SILENCE, file_chunks, microphone_chunks


async def test_file_becomes_whole_pieces_of_24_khz_pcm16(tmp_path: Path) -> None:
    path = tmp_path / "tone.wav"
    tone = (16_000 * np.sin(2 * np.pi * 440 * np.arange(8_000) / 8_000)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes(tone.tobytes())
    pieces = [piece async for piece in await file_chunks(str(path))]
    assert {len(piece) for piece in pieces} == {len(SILENCE)}
    samples = np.frombuffer(b"".join(pieces), "<i2")
    assert abs(len(samples) - 24_000) <= 480
    assert abs(int(np.abs(samples).max()) - 16_000) < 400


async def test_missing_microphone_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(CommandError, match=r"sensorium\[mic\]"):
        await anext(microphone_chunks())
