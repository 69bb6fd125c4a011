"""Muse over `/v1/realtime`: what is seen and heard as it comes is answered as transformers would.

A real server with a tiny checkpoint, the openai client, and transformers offline on the same items.
"""

import asyncio
import base64
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from media_files import noise, picture_file, video_file, wav
from muse_oracle import (
    Answer,
    Content,
    Message,
    Offline,
    clip,
    picture,
    sound_of,
    talking_muse,
    video,
)
from openai import AsyncOpenAI
from PIL import Image
from servers import Server, serve

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
MAX_TOKENS = 32
BLOCK_SIZE = 4
NUM_LAYER_GROUPS = 3  # of two layers each: one full, two sliding
ROW_BYTES = 2 * 1920
INSTRUCTIONS = "Say what you see."
SETTINGS = f"""
[session]
default_instructions = "{INSTRUCTIONS}"
max_output_tokens = {MAX_TOKENS}
[models]
dtype = "float32"
weights = "same"
[engine]
threads = 1
block_size = {BLOCK_SIZE}
cache_mib = 64
"""


# ---- what is sent


def _pcm(seconds: float, seed: int) -> bytes:
    """Return a tone that glides, with a little noise: 24 kHz PCM16."""
    num = int(seconds * 24_000)
    tone = 8000 * np.sin(np.cumsum(np.linspace(0.02, 0.3, num)))
    return bytes((tone + np.random.default_rng(seed).normal(0, 300, num)).astype("<i2"))


WIDE = picture_file(Image.fromarray(noise(100, 150, seed=1)), "PNG")
_EXIF = Image.Exif()
_EXIF[0x0112] = 6  # to be turned by a quarter
TALL = picture_file(Image.fromarray(noise(120, 170, seed=2)), "JPEG", exif=_EXIF)
FRAMES = [noise(60, 90, seed=100 + i) for i in range(26)]
LOSSLESS = {"qp": "0", "threads": "1"}
FILM = video_file("mp4", "libx264", FRAMES, options=LOSSLESS)
SPEECH = _pcm(2.05, seed=3)
SHORT = _pcm(0.61, seed=11)
TALKIE = video_file(
    "matroska",
    "libx264",
    FRAMES[:21],
    options=LOSSLESS,
    sound=clip(_pcm(1.3, seed=5)).samples,
    sound_hz=24_000,
    sound_codec="pcm_s16le",
)


def text_part(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


def image_part(data: bytes, kind: str = "png") -> dict[str, str]:
    return {"type": "input_image", "image_url": f"data:image/{kind};base64,{_base64(data)}"}


def video_part(data: bytes, kind: str = "mp4") -> dict[str, str]:
    return {"type": "input_video", "video_url": f"data:video/{kind};base64,{_base64(data)}"}


def audio_part(pcm: bytes) -> dict[str, str]:
    return {"type": "input_audio", "audio": _base64(pcm)}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# ---- both sides


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talking_muse(tmp_path_factory.mktemp("muse") / "tiny")


@pytest.fixture(scope="module")
def muse(folder: Path) -> Iterator[Server]:
    """`sensorium serve --model` with the tiny checkpoint."""
    config = folder.parent / "sensorium.toml"
    config.write_text(SETTINGS)
    with serve(folder.parent, "--config", str(config), "--model", str(folder)) as server:
        yield server
        assert "Traceback" not in server.log.read_text()


@pytest.fixture(scope="module")
def offline(folder: Path) -> Offline:
    return Offline(folder)


def expected(offline: Offline, *items: Sequence[Content] | Answer) -> Answer:
    """Return transformers' answer, which must not hang by a rounding."""
    answer = offline.answer(INSTRUCTIONS, items, MAX_TOKENS)
    assert answer.gap > 1e-3, answer
    assert answer.margin > 1e-5, answer
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response as it came over the wire; of the events, their types."""

    messages: tuple[Message, ...]
    text: str
    usage: Any
    status: str
    item_id: str
    types: tuple[str, ...]


class Talk:
    """A session of the openai client whose sound is committed by hand."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def item(self, *parts: dict[str, str], item_id: str = "", event_id: str = "") -> None:
        """Add an item of the user."""
        item = {"type": "message", "role": "user", "content": list(parts)}
        named = {"event_id": event_id} if event_id else {}
        await self._session.conversation.item.create(
            item=item | ({"id": item_id} if item_id else {}), **named
        )

    async def append(self, pcm: bytes, sizes: Sequence[int] = (960,)) -> None:
        """Append sound in pieces of these sizes, over and over."""
        begin = 0
        for size in itertools.cycle(sizes):
            if begin >= len(pcm):
                return
            await self._session.input_audio_buffer.append(audio=_base64(pcm[begin : begin + size]))
            begin += size

    async def say(self, pcm: bytes, sizes: Sequence[int] = (960,)) -> None:
        """Append sound, and commit it as a turn."""
        await self.append(pcm, sizes)
        await self._session.input_audio_buffer.commit()

    async def delete(self, item_id: str) -> None:
        await self._session.conversation.item.delete(item_id=item_id)

    async def until(self, kind: str) -> list[Any]:
        """Read events up to the first of a kind."""
        events: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            while not events or events[-1].type != kind:
                events.append(await self._session.recv())
        return events

    async def ask(self, **response: Any) -> Reply:
        """Ask for an answer and read it; errors fail the test."""
        await self._session.response.create(response=response)
        events = await self.until("response.done")
        assert not [event for event in events if event.type == "error"]
        return _reply(events)


def _reply(events: Sequence[Any]) -> Reply:
    text, answer, messages = "", "", []
    for event in events:
        if event.type == "response.output_text.delta":
            text, answer = text + event.delta, answer + event.delta
        elif event.type == "response.channel.delta":
            text += event.delta
        elif event.type == "response.channel.done":
            messages.append(Message(channel=event.channel, text=text, end=event.end))
            text = ""
    response = events[-1].response
    (item,) = response.output
    assert item.content[0].text == answer
    return Reply(
        messages=tuple(messages),
        text=answer,
        usage=response.usage,
        status=response.status,
        item_id=item.id,
        types=tuple(event.type for event in events),
    )


@asynccontextmanager
async def talking(muse: Server) -> AsyncIterator[Talk]:
    client = AsyncOpenAI(base_url=f"{muse.url}/v1", api_key="none")
    query = {"channels": "true"}
    async with client.realtime.connect(model="default", extra_query=query) as session:
        audio: Any = {"input": {"turn_detection": None}}
        await session.session.update(
            session={"type": "realtime", "audio": audio, "instructions": INSTRUCTIONS}
        )
        talk = Talk(session)
        await talk.until("session.updated")
        yield talk
    await client.close()


def check(reply: Reply, answer: Answer) -> None:
    """What came over the wire is what transformers wrote, after a prompt of the same make-up."""
    assert reply.messages == answer.messages
    assert reply.text == answer.text
    assert reply.usage.output_tokens == len(answer.ids)
    details = reply.usage.input_token_details
    assert reply.status == ("completed" if answer.is_complete else "incomplete")
    counted = (reply.usage.input_tokens, details.audio_tokens, details.image_tokens)
    assert counted == (answer.num_prompt, answer.num_heard, answer.num_seen)


# ---- any order, any sizes


async def test_items_in_any_order_are_answered_as_offline(muse: Server, offline: Offline) -> None:
    async with talking(muse) as talk:
        await talk.item(text_part("what is that"), image_part(WIDE))
        await talk.say(SPEECH)
        await talk.item(video_part(FILM))
        reply = await talk.ask()
    items: list[list[Content]] = [["what is that", picture(WIDE)], [clip(SPEECH)], [video(FILM)]]
    check(reply, expected(offline, *items))


async def test_one_item_holds_everything(muse: Server, offline: Offline) -> None:
    async with talking(muse) as talk:
        await talk.item(
            image_part(TALL, "jpeg"),
            text_part("sounds like"),
            audio_part(SHORT),
            text_part("and moves like"),
            video_part(FILM),
            image_part(WIDE),
        )
        reply = await talk.ask()
    seen: list[Content] = [video(FILM), picture(WIDE)]
    item = [picture(TALL), "sounds like", clip(SHORT), "and moves like", *seen]
    check(reply, expected(offline, item))


async def test_sound_of_a_video_follows_it(muse: Server, offline: Offline) -> None:
    async with talking(muse) as talk:
        await talk.say(SHORT)
        await talk.item(video_part(TALKIE, "x-matroska"), text_part("so?"))
        reply = await talk.ask()
    item: list[Content] = [video(TALKIE), sound_of(TALKIE), "so?"]
    check(reply, expected(offline, [clip(SHORT)], item))
    assert [message.channel for message in reply.messages] == ["self", "user"]


async def test_picture_that_comes_during_a_turn_stands_before_it(
    muse: Server, offline: Offline
) -> None:
    async with talking(muse) as talk:
        await talk.append(SPEECH[:40_001])
        await talk.item(image_part(WIDE))
        await talk.say(SPEECH[40_001:])
        reply = await talk.ask()
    check(reply, expected(offline, [picture(WIDE)], [clip(SPEECH)]))


SIZES = {
    "whole": [len(SPEECH)],
    "20 ms": [960],
    "a row": [ROW_BYTES],
    "odd ones": [1, 3, 2, 5, 1, 1921, 7, 4001, 1, 959, 20_011],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
async def test_sizes_of_appends_change_nothing(
    muse: Server, offline: Offline, sizes: Sequence[int]
) -> None:
    async with talking(muse) as talk:
        await talk.say(SPEECH, sizes)
        await talk.item(text_part("what was that"))
        reply = await talk.ask()
    check(reply, expected(offline, [clip(SPEECH)], ["what was that"]))


async def test_conversation_goes_on_after_answers(muse: Server, offline: Offline) -> None:
    async with talking(muse) as talk:
        await talk.item(image_part(WIDE))
        first = await talk.ask()
        await talk.say(SHORT)
        second = await talk.ask()
    answer = expected(offline, [picture(WIDE)])
    check(first, answer)
    check(second, expected(offline, [picture(WIDE)], answer, [clip(SHORT)]))


# ---- prefilled while it comes


async def _load(muse: Server, until: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """Return what `/health` says of the engine's load, once that is so."""
    load: dict[str, int] = {}
    async with httpx.AsyncClient() as client:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not load or not until(load):
                    await asyncio.sleep(0.05)  # between two looks, PATIENCE_S at most
                    load = (await client.get(f"{muse.url}/health")).json().get("load", {})
        except TimeoutError:
            pytest.fail(f"the load stays {load}")
    return load


async def test_nearly_all_is_prefilled_before_the_commit(muse: Server, offline: Offline) -> None:
    answer = expected(offline, [picture(WIDE)], [clip(SPEECH)])
    last = len(SPEECH) - ROW_BYTES
    num_closing = len(offline.prompt.close_message()) + len(offline.prompt.open_reply())
    num_late = 2 + 1 + num_closing  # rows that the last 80 ms complete, and the mark behind them
    num_blocks = -(-(answer.num_prompt - num_late) // BLOCK_SIZE) * NUM_LAYER_GROUPS
    async with talking(muse) as talk:
        await talk.item(text_part("hello"))  # no load is told before there was some
        await talk.ask()
    free = (await _load(muse, lambda load: load["sequences"] == 0))["free_blocks"]
    async with talking(muse) as talk:
        await talk.item(image_part(WIDE))
        await talk.append(SPEECH[:last])
        # Only all of it takes so many.
        await _load(muse, lambda load: load["free_blocks"] <= free - num_blocks)
        await talk.say(SPEECH[last:])
        reply = await talk.ask()
    check(reply, answer)
    cached = reply.usage.input_token_details.cached_tokens
    assert cached >= answer.num_prompt - num_late
    assert cached >= 0.9 * reply.usage.input_tokens


# ---- the sample


def test_sample_prints_the_answer(muse: Server, offline: Offline, tmp_path: Path) -> None:
    (tmp_path / "wide.png").write_bytes(WIDE)
    (tmp_path / "text.png").write_text("hello")
    (tmp_path / "speech.wav").write_bytes(wav(SPEECH, rate_hz=24_000))
    command = [sys.executable, str(ROOT / "samples" / "realtime_media.py")]

    def run(picture: str) -> "subprocess.CompletedProcess[str]":
        arguments = [*command, picture, "speech.wav", muse.url]
        return subprocess.run(
            arguments, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    good = run("wide.png")
    answer = expected(offline, [picture(WIDE)], [clip(SPEECH)])
    assert (good.returncode, good.stdout) == (0, f"{answer.text}\n")
    bad = run("text.png")
    assert bad.returncode == 1
    assert bad.stderr.startswith("The file is none of jpeg, png,")


# ---- beside and without


async def test_fork_sees_the_item_it_refers_to(muse: Server, offline: Offline) -> None:
    async with talking(muse) as talk:
        await talk.item(image_part(WIDE), item_id="wide")
        await talk.say(SHORT)
        await talk.item(image_part(TALL, "jpeg"), item_id="tall")
        reference = {"type": "item_reference", "id": "tall"}
        beside = await talk.ask(conversation="none", input=[reference])
        reply = await talk.ask()
    check(beside, expected(offline, [picture(TALL)]))
    check(reply, expected(offline, [picture(WIDE)], [clip(SHORT)], [picture(TALL)]))


async def test_deleted_picture_is_seen_no_more(muse: Server, offline: Offline) -> None:
    async with talking(muse) as talk:
        await talk.item(image_part(WIDE), item_id="wide")
        await talk.item(video_part(FILM))
        first = await talk.ask()
        await talk.delete("wide")
        await talk.delete(first.item_id)
        second = await talk.ask()
    check(first, expected(offline, [picture(WIDE)], [video(FILM)]))
    check(second, expected(offline, [video(FILM)]))
    assert first.messages != second.messages


# ---- what can't be taken


WRONG = {
    "a text as a picture": (image_part(b"hello, I am a text"), "unsupported_format"),
    "a picture as a video": (video_part(WIDE), "unsupported_format"),
    "a cut picture": (image_part(WIDE[:2000]), "truncated"),
    "a URL": (
        {"type": "input_image", "image_url": "https://example.org/cat.png"},
        "invalid_value",
    ),
    "too much": (image_part(bytes((15 << 20) + 1)), "invalid_value"),
    "no base64": (
        {"type": "input_video", "video_url": "data:video/mp4;base64,%%"},
        "invalid_value",
    ),
}


async def test_what_cannot_be_taken_is_said_and_the_session_goes_on(
    muse: Server, offline: Offline
) -> None:
    async with talking(muse) as talk:
        for name, (part, code) in WRONG.items():
            await talk.item(text_part("look"), part, event_id=name)
            error = (await talk.until("error"))[-1].error
            assert (error.event_id, error.code) == (name, code)
            assert error.type == "invalid_request_error"
            assert len(error.message) < 500
        await talk.item(image_part(WIDE))
        reply = await talk.ask()
    check(reply, expected(offline, [picture(WIDE)]))
