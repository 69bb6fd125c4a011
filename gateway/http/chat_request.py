"""The body of `POST /v1/chat/completions`: what of OpenAI's schema means something here."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from sensorium.core.api import Constraint, SamplingParams
from sensorium.gateway.errors import PeerError
from sensorium.gateway.http.chat_messages import Message
from sensorium.gateway.http.chat_tools import ToolUse, tool_use

MAX_STOPS = 4
MAX_TOP_LOGPROBS = 20
"""OpenAI's limit, and the engine's."""


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
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    n: int | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    logit_bias: dict[str, float] | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None
    verbosity: str | None = None

    def stops(self) -> tuple[str, ...]:
        """Return the strings that end the answer."""
        wanted = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in wanted if text)

    def tool_use(self) -> ToolUse:
        """Return which tools the model is given; raises PeerError."""
        parallel = self.parallel_tool_calls is not False
        return tool_use(self.tools or [], self.tool_choice, parallel=parallel)

    def effort(self, known: Sequence[str]) -> str | None:
        """Return the level of reasoning, None if it is the model's choice.

        Raises PeerError unless it is one of the model's `known` ones.
        """
        if self.reasoning_effort is None or self.reasoning_effort in known:
            return self.reasoning_effort
        told = "This model has no levels of reasoning; leave it out."
        if known:
            levels = f"the levels of this model are {', '.join(known)}"
            told = f"There is no level {self.reasoning_effort[:50]!r}; {levels}."
            if self.reasoning_effort in ("none", "minimal"):
                told = f"Reasoning can't be switched off; {levels}."
        raise PeerError("invalid_value", told, param="reasoning_effort")

    def sampling(
        self,
        *,
        default_tokens: int,
        room: int,
        stop_token_ids: tuple[int, ...],
        constraint: Constraint | None = None,
    ) -> SamplingParams:
        """Return how to sample; greedy unless the request names a temperature.

        The answer has `default_tokens` at most unless the request says, and `room` in any case.
        """
        wanted = self.max_completion_tokens or self.max_tokens or default_tokens
        return SamplingParams(
            max_tokens=min(wanted, room),
            temperature=self.temperature or 0.0,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k or 0,
            min_p=self.min_p or 0.0,
            seed=self.seed,
            stop_token_ids=stop_token_ids,
            num_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            constraint=constraint,
        )


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
    except RecursionError:
        raise PeerError("invalid_json", "The body is nested too deeply.") from None
    _refuse_unsupported(request)
    return request


def _missing(message: str) -> str | None:
    found = re.search(r"required field `(\w+)`", message)
    return found and found[1]


def _refuse_unsupported(request: ChatRequest) -> None:
    """Raise PeerError for a field that would change the answer and can't be honoured."""
    absent = "leave it out"
    unsupported = {
        "n": (request.n not in (None, 1), "it must be 1"),
        "functions": (bool(request.functions), "declare them as 'tools'"),
        "function_call": (request.function_call not in (None, "none"), "use 'tool_choice'"),
        "top_logprobs": (
            bool(request.top_logprobs) and not request.logprobs,
            "it needs 'logprobs': true",
        ),
        "logit_bias": (bool(request.logit_bias), absent),
        "frequency_penalty": (bool(request.frequency_penalty), "it must be 0"),
        "presence_penalty": (bool(request.presence_penalty), "it must be 0"),
        "modalities": (
            any(modality != "text" for modality in request.modalities or []),
            'it must be ["text"]',
        ),
        "audio": (bool(request.audio), absent),
        "web_search_options": (request.web_search_options is not None, absent),
        "verbosity": (request.verbosity not in (None, "medium"), absent),
    }
    for name, (refused, right) in unsupported.items():
        if refused:
            raise PeerError(
                "unsupported_parameter",
                f"{name!r} isn't supported with this value here: {right}.",
                param=name,
            )
