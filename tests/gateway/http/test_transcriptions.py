"""`POST /v1/audio/transcriptions` over a fake engine and the real decoder."""

import asyncio
import io
import wave
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from app_rig import fake_engine, http_client, make_app
from fakes import MODEL, ROWS_MODEL, FakeEngine

from sensorium.core.api import AppendMedia, ModelInfo, OpenSpan
from sensorium.gateway.http.transcriptions import POSITIONS_PER_SECOND
from sensorium.gateway.settings import GatewaySettings, Settings

PATH = "/v1/audio/transcriptions"


def clip(seconds: float = 2.0, rate_hz: int = 8000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as output:
        output.setnchannels(1)
        output.setsampwidth(2)
        output.setframerate(rate_hz)
        output.writeframes(np.full(int(seconds * rate_hz), 1000, "<i2").tobytes())
    return file.getvalue()


async def post(
    engine: FakeEngine | None = None,
    *,
    file: bytes | None = None,
    settings: Settings | None = None,
    **fields: Any,
) -> httpx.Response:
    app = make_app(engine or fake_engine(transcript=" Hello there."), settings=settings)
    async with http_client(app) as client:
        files = {"file": ("speech.mp3", clip() if file is None else file)}
        return await client.post(PATH, files=files, data={"model": "default", **fields})


async def test_json_and_text() -> None:
    as_json, as_text = await post(), await post(response_format="text")
    assert as_json.json() == {
        "text": "Hello there.",
        "usage": {"type": "duration", "seconds": 2},
    }
    assert as_text.text == "Hello there.\n"


async def test_verbose_json_has_what_was_asked_for() -> None:
    segments = (await post(response_format="verbose_json")).json()
    assert (segments["task"], segments["language"], segments["duration"]) == ("transcribe", "en", 2)
    assert segments["segments"] == [{"id": 0, "start": 0.0, "end": 2.0, "text": "Hello there."}]
    assert "words" not in segments
    granularity: dict[str, Any] = {"timestamp_granularities[]": "word"}
    words = (await post(response_format="verbose_json", **granularity)).json()
    assert words["words"] == [
        {"word": "Hello", "start": 0.0, "end": 1.0},
        {"word": "there.", "start": 1.0, "end": 2.0},
    ]
    assert "segments" not in words


async def test_captions() -> None:
    srt, vtt = await post(response_format="srt"), await post(response_format="vtt")
    assert srt.text == "1\n00:00:00,000 --> 00:00:02,000\nHello there.\n"
    assert vtt.text.startswith("WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nHello there.")


async def test_engine_gets_the_sound_at_its_rate_and_the_hints() -> None:
    engine = fake_engine()
    await post(engine, language="en-US", prompt="Names: Ann.")
    [span] = [request for request in engine.requests if isinstance(request, OpenSpan)]
    assert (span.hints.live, span.hints.language, span.hints.prompt) == (False, "en", "Names: Ann.")
    media = [request for request in engine.requests if isinstance(request, AppendMedia)]
    num_samples = [request.shape[0] for request in media]
    assert sum(num_samples) == 2 * MODEL.audio_rate_hz
    assert [request.pts for request in media] == [0, *np.cumsum(num_samples)[:-1]]
    assert engine.sequences == {}


async def test_long_sound_is_heard_in_pieces_on_one_clock() -> None:
    engine = fake_engine(transcript=" Hello.")
    engine.info = replace(MODEL, max_positions=10 * POSITIONS_PER_SECOND)
    response = await post(engine, file=clip(28), response_format="verbose_json")
    body = response.json()
    spans = [request for request in engine.requests if isinstance(request, OpenSpan)]
    assert len(spans) >= 3
    assert [span.hints.prompt for span in spans[:2]] == ["", "Hello."]
    assert body["text"] == " ".join(["Hello."] * len(spans))
    assert body["duration"] == 28
    starts = [segment["start"] for segment in body["segments"]]
    assert starts == sorted(starts)
    assert body["segments"][-1]["end"] == 28


async def test_language_that_is_not_known_is_said_to_be() -> None:
    engine = fake_engine()
    engine.problem = "This doesn't sound like English."
    response = await post(engine)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "not_understood")
    assert error["message"] == engine.problem


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "xml"}, "response_format"),
        ({"language": "English!"}, "language"),
        ({"timestamp_granularities[]": "phoneme"}, "timestamp_granularities"),
        ({"prompt": "x" * 5000}, "prompt"),
        ({"stream": "true"}, "stream"),
        ({"model": "whisper-1"}, "model"),
        ({"file": b""}, "file"),
        ({"file": b"no sound at all"}, "file"),
    ],
)
async def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    engine = fake_engine()
    response = await post(engine, **fields)
    assert response.status_code in (400, 404)
    assert response.json()["error"]["param"] == param
    assert engine.sequences == {}


async def test_form_without_a_file_or_that_is_none() -> None:
    async with http_client(make_app()) as client:
        no_form = await client.post(PATH, json={"file": "x"})
        no_file = await client.post(PATH, files={"other": b"x"})
        broken = await client.post(
            PATH, content=b"nonsense", headers={"content-type": "multipart/form-data; boundary=x"}
        )
        no_boundary = await client.post(
            PATH, content=b"nonsense", headers={"content-type": "multipart/form-data"}
        )
    assert no_form.json()["error"]["code"] == "invalid_content_type"
    assert no_file.json()["error"]["param"] == "file"
    for response in (broken, no_boundary):
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"


async def test_upload_is_bounded() -> None:
    settings = Settings(gateway=GatewaySettings(max_upload_mib=1))
    response = await post(settings=settings, file=bytes(2 * 2**20))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


async def test_sound_is_bounded() -> None:
    settings = Settings(gateway=GatewaySettings(max_sound_s=1))
    response = await post(settings=settings)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "too_long")


async def test_full_way_to_the_engine_is_waited_for() -> None:
    class Jammed(FakeEngine):
        refusals = 3

        def submit(self, request: Any) -> None:
            self.busy = isinstance(request, AppendMedia) and self.refusals > 0
            self.refusals -= self.busy
            try:
                super().submit(request)
            finally:
                self.busy = False

    engine = Jammed(auto=True, transcript=" Hello there.")
    response = await post(engine)
    assert (response.status_code, engine.refusals) == (200, 0)
    assert response.json()["text"] == "Hello there."


async def test_lost_engine_is_a_503() -> None:
    class Dying(FakeEngine):
        def submit(self, request: Any) -> None:
            super().submit(request)
            if isinstance(request, AppendMedia):
                asyncio.get_running_loop().call_soon(self.lose)

    response = await post(Dying(auto=True))
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_lost")


@pytest.mark.parametrize(
    ("model", "reason"),
    [(ROWS_MODEL, "hears embeddings, not words"), (replace(MODEL, intakes={}), "doesn't hear")],
)
async def test_a_model_that_makes_no_words_is_not_asked_for_them(
    model: ModelInfo, reason: str
) -> None:
    engine = fake_engine()
    engine.info = model
    answer = await post(engine, file=b"not even sound")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_model", "model")
    assert reason in error["message"]
