"""The body of `POST /v1/chat/completions`: what of OpenAI's schema means something here."""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from sensorium.core.api import SamplingParams
from sensorium.gateway.errors import PeerError

MAX_STOPS = 4
_ROLES = ("system", "developer", "user", "assistant")


class ContentPart(Struct):
    """One part of a message; only `text` is taken."""

    type: str
    text: str = ""


class Message(Struct):
    """One message. `content` may be absent only where it stands for nothing."""

    role: str
    content: str | list[ContentPart] | None = None
    tool_calls: list[Any] | None = None

    def text(self, index: int) -> str:
        """Return the message's text; raises PeerError for content that isn't text."""
        if isinstance(self.content, str):
            return self.content
        for part in self.content or []:
            if part.type != "text":
                raise PeerError(
                    "unsupported_content",
                    f"Content of type {part.type[:50]!r} isn't taken here, only 'text'.",
                    param=f"messages[{index}].content",
                )
        return "".join(part.text for part in self.content or [])


class StreamOptions(Struct):
    """Options of a streamed answer."""

    include_usage: bool = False


class ChatRequest(Struct):
    """The body. Fields that change nothing here (`user`, `store`, …) are not listed and ignored."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=1000)]
    model: str = "default"
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    n: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, float] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None

    def stops(self) -> tuple[str, ...]:
        """Return the strings that end the answer."""
        wanted = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in wanted if text)

    def sampling(
        self, *, default_tokens: int, room: int, stop_token_ids: tuple[int, ...]
    ) -> SamplingParams:
        """Return how to sample; greedy unless the request names a temperature.

        The answer has `default_tokens` at most unless the request says, and `room` in any case.
        """
        wanted = self.max_completion_tokens or self.max_tokens or default_tokens
        return SamplingParams(
            max_tokens=min(wanted, room),
            temperature=self.temperature or 0.0,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            stop_token_ids=stop_token_ids,
        )

    def turns(self) -> list[tuple[Literal["system", "user", "assistant"], str]]:
        """Return roles and texts; raises PeerError for roles and contents that can't be served."""
        turns: list[tuple[Literal["system", "user", "assistant"], str]] = []
        for index, message in enumerate(self.messages):
            text = message.text(index)
            match message.role:
                case "system" | "developer":
                    turns.append(("system", text))
                case "user":
                    turns.append(("user", text))
                case "assistant" if not message.tool_calls:
                    turns.append(("assistant", text))
                case _:
                    raise PeerError(
                        "unsupported_role",
                        f"Messages of role {message.role[:50]!r} and tool calls aren't taken here; "
                        f"roles are {', '.join(_ROLES)}.",
                        param=f"messages[{index}].role",
                    )
        return turns


_DECODER = msgspec.json.Decoder(ChatRequest)


def parse_chat(body: bytes) -> ChatRequest:
    """Read and check a body; raises PeerError, which names the field."""
    try:
        request = _DECODER.decode(body)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        param = path.rstrip("`").removeprefix("$").removeprefix(".") or _missing(message)
        raise PeerError("invalid_value", f"{message}.", param=param) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PeerError("invalid_json", f"The body isn't valid JSON: {error}.") from None
    _refuse_unsupported(request)
    return request


def _missing(message: str) -> str | None:
    found = re.search(r"required field `(\w+)`", message)
    return found and found[1]


def _refuse_unsupported(request: ChatRequest) -> None:
    """Raise PeerError for a field that would change the answer and can't be honoured."""
    form = (request.response_format or {}).get("type", "text")
    unsupported = {
        "n": request.n not in (None, 1),
        "tools": bool(request.tools),
        "functions": bool(request.functions),
        "tool_choice": request.tool_choice not in (None, "none", "auto"),
        "response_format": form != "text",
        "logprobs": bool(request.logprobs),
        "top_logprobs": bool(request.top_logprobs),
        "logit_bias": bool(request.logit_bias),
        "frequency_penalty": bool(request.frequency_penalty),
        "presence_penalty": bool(request.presence_penalty),
        "modalities": any(modality != "text" for modality in request.modalities or []),
        "audio": bool(request.audio),
        "web_search_options": request.web_search_options is not None,
    }
    for name, refused in unsupported.items():
        if refused:
            raise PeerError(
                "unsupported_parameter",
                f"{name!r} isn't supported with this value here; leave it out.",
                param=name,
            )
