"""`POST /v1/audio/transcriptions`: a file of sound to text, segments, words or captions."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from sensorium.core.api import Heard, ModelInfo, SpanClosed
from sensorium.encoders.base import ClipHints, Word
from sensorium.encoders.decode import DecodeLimits, decode_stream
from sensorium.encoders.media import Samples
from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.body import while_connected
from sensorium.gateway.http.captions import Segment, segments, srt, vtt
from sensorium.gateway.http.models import check_model
from sensorium.gateway.http.pieces import pieces
from sensorium.gateway.http.sequence import open_sequence
from sensorium.gateway.http.transcription_form import TranscriptionForm, read_form
from sensorium.gateway.services import Services

POSITIONS_PER_SECOND = 8
"""More than the fastest speaker fills, by a factor of two."""
MAX_PIECE_S = 240.0
MAX_FILES_AT_ONCE = 4
"""More wait their turn: each holds a decoder process."""
_MESSAGE_SAMPLES = 1 << 16
_PROMPT_CHARS = 400
"""How much of what was heard before goes with the next piece."""


@dataclass(slots=True)
class Transcript:
    """What was heard so far. `problem` says why a part couldn't be heard well."""

    text: str = ""
    words: list[Word] = field(default_factory=list)
    num_samples: int = 0
    language: str | None = None
    problem: str | None = None


class TranscriptionsEndpoint:
    """Decodes uploads and lets the engine hear them, piece by piece."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._places = asyncio.Semaphore(MAX_FILES_AT_ONCE)
        self._feeding = asyncio.Lock()

    async def create(self, request: Request) -> Response:
        """Answer one request; raises GatewayError and MediaError."""
        settings = self._services.settings.gateway
        with self._services.admission.request_place("transcriptions"):
            form = await read_form(request, settings.max_upload_mib << 20)
            info = check_model(self._services, form.model)
            _check_ears(info)
            heard = await while_connected(request.receive, self._hear(form, info))
        if heard.problem and not heard.text:
            raise PeerError("not_understood", heard.problem, param="file")
        return _response(form, heard, info.audio_rate_hz)

    async def _hear(self, form: TranscriptionForm, info: ModelInfo) -> Transcript:
        limits = DecodeLimits(max_sound_s=self._services.settings.gateway.max_sound_s)
        max_piece_s = min(MAX_PIECE_S, info.max_positions / POSITIONS_PER_SECOND)
        heard = Transcript()
        sound = decode_stream(form.data, info.audio_rate_hz, limits)
        async with self._places, aclosing(sound) as chunks:
            async for piece in pieces(chunks, info.audio_rate_hz, max_piece_s):
                self._services.metrics.decoded_seconds.inc(len(piece) / info.audio_rate_hz)
                prompt = heard.text[-_PROMPT_CHARS:] or form.prompt
                hints = ClipHints(live=False, language=form.language, prompt=prompt)
                await self._hear_piece(piece, hints, heard, info.audio_rate_hz)
        return heard

    async def _hear_piece(
        self, piece: Samples, hints: ClipHints, heard: Transcript, rate_hz: int
    ) -> None:
        """Add one piece to what was heard; each has a sequence of its own."""
        offset_s = heard.num_samples / rate_hz
        async with open_sequence(self._services) as sequence:
            async with self._feeding:
                await sequence.append_clip(_split(piece), hints)
            while True:
                match await sequence.next():
                    case Heard(words=words):
                        heard.words += [_later(word, offset_s) for word in words]
                    case SpanClosed() as closed:
                        break
                    case _:
                        pass
        text = closed.transcript.strip()
        heard.text = f"{heard.text} {text}".strip()
        heard.language = heard.language or closed.language
        heard.problem = heard.problem or closed.problem
        heard.num_samples += len(piece)


def _check_ears(info: ModelInfo) -> None:
    """Raise PeerError for a model that hears no words, before anything is decoded."""
    intake = info.intakes.get("audio")
    if intake is None or intake.gives_rows:
        hears = "doesn't hear" if intake is None else "hears embeddings, not words"
        raise PeerError(
            "unsupported_model",
            f"{info.name} {hears}; serve a model with a transcriber, such as the default.",
            param="model",
        )


def _split(piece: Samples) -> Iterator[Samples]:
    for start in range(0, len(piece), _MESSAGE_SAMPLES):
        yield piece[start : start + _MESSAGE_SAMPLES]


def _later(word: Word, offset_s: float) -> Word:
    return replace(word, start_s=word.start_s + offset_s, end_s=word.end_s + offset_s)


def _response(form: TranscriptionForm, heard: Transcript, rate_hz: int) -> Response:
    seconds = heard.num_samples / rate_hz
    match form.response_format:
        case "text":
            return PlainTextResponse(heard.text + "\n")
        case "srt":
            return PlainTextResponse(srt(segments(heard.words)), media_type="application/x-subrip")
        case "vtt":
            return PlainTextResponse(vtt(segments(heard.words)), media_type="text/vtt")
        case _:
            pass
    body: dict[str, object] = {"text": heard.text}
    if form.response_format == "verbose_json":
        body = {"task": "transcribe", "language": heard.language or "", "duration": seconds} | body
        if form.segments:
            parts = enumerate(segments(heard.words))
            body["segments"] = [_segment(number, part) for number, part in parts]
        if form.words:
            body["words"] = [_word(word) for word in heard.words]
    body["usage"] = {"type": "duration", "seconds": round(seconds)}
    if heard.problem:
        body["problem"] = heard.problem
    return Response(msgspec.json.encode(body), media_type="application/json")


def _segment(number: int, part: Segment) -> dict[str, object]:
    """Return a segment in OpenAI's shape, without the numbers that only whisper's decoder has."""
    return {
        "id": number,
        "start": round(part.start_s, 3),
        "end": round(part.end_s, 3),
        "text": part.text,
    }


def _word(word: Word) -> dict[str, object]:
    return {
        "word": word.text.strip(),
        "start": round(word.start_s, 3),
        "end": round(word.end_s, 3),
    }
