"""What `POST /v1/audio/transcriptions` is asked for: the fields of its multipart form."""

import re
from dataclasses import dataclass
from typing import Literal, cast

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.body import arriving, bounded

FORMATS = ("json", "text", "verbose_json", "srt", "vtt")
ResponseFormat = Literal["json", "text", "verbose_json", "srt", "vtt"]
GRANULARITIES = ("word", "segment")
MAX_PROMPT_CHARS = 4000
_FORM_BYTES = 64 * 1024
"""Room for the other fields and the boundaries around the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionForm:
    """A checked request. `language` is an ISO 639-1 code or None; `words` wants their times."""

    data: bytes
    model: str
    language: str | None
    prompt: str
    response_format: ResponseFormat
    words: bool
    segments: bool


async def read_form(request: Request, max_file_bytes: int) -> TranscriptionForm:
    """Read and check the form; raises PeerError, which names the field."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise PeerError(
            "invalid_content_type",
            "Send the file as multipart/form-data: curl -F file=@speech.wav -F model=default",
        )
    limited = bounded(request, max_file_bytes + _FORM_BYTES)
    try:
        async with arriving():
            form = await limited.form(max_files=1, max_fields=20, max_part_size=_FORM_BYTES)
    except HTTPException as error:
        raise PeerError("invalid_form", f"The form can't be read: {error.detail}") from None
    try:
        return await _checked(form)
    finally:
        await form.close()


async def _checked(form: FormData) -> TranscriptionForm:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise PeerError("missing_required_parameter", "The form has no file.", param="file")
    response_format = _field(form, "response_format") or "json"
    _one_of("response_format", response_format, FORMATS)
    granularities = {
        str(value)
        for name in ("timestamp_granularities[]", "timestamp_granularities")
        for value in form.getlist(name)
    }
    for value in granularities:
        _one_of("timestamp_granularities", value, GRANULARITIES)
    if _field(form, "stream").lower() in ("true", "1"):
        raise PeerError("unsupported_parameter", "Streamed transcripts are at /v1/realtime.",
                        param="stream")  # fmt: skip
    prompt = _field(form, "prompt")
    if len(prompt) > MAX_PROMPT_CHARS:
        raise PeerError(
            "invalid_value", f"The prompt may have {MAX_PROMPT_CHARS} characters.", param="prompt"
        )
    return TranscriptionForm(
        data=await file.read(),
        model=_field(form, "model") or "default",
        language=_language(_field(form, "language")),
        prompt=prompt,
        response_format=cast(ResponseFormat, response_format),
        words="word" in granularities,
        segments=not granularities or "segment" in granularities,
    )


def _field(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


def _language(value: str) -> str | None:
    """Return the ISO 639-1 part of a language tag."""
    if not value:
        return None
    if not re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*", value):
        raise PeerError(
            "invalid_value", "A language is an ISO 639-1 code such as 'en'.", param="language"
        )
    return re.split("[-_]", value.lower())[0]


def _one_of(param: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise PeerError(
            "invalid_value",
            f"{param} can't be {value[:50]!r}; it is one of {', '.join(known)}.",
            param=param,
        )
