"""Session settings of the Realtime protocol (GA shape) as msgspec structs, with every bound.

Absent and null mean the same (None) where the protocol gives null no meaning of its own; where null
switches something off or back to its default, absent is UNSET. Keys that are not here are refused.
"""

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_TEXT_CHARS = 256 * 1024
MAX_OUTPUT_TOKENS = 4096

T = TypeVar("T")
Given: TypeAlias = T | UnsetType | None

Name = Annotated[str, Meta(max_length=128)]
Text = Annotated[str, Meta(max_length=MAX_TEXT_CHARS)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Milliseconds = Annotated[int, Meta(ge=0, le=60_000)]
MaxOutputTokens = Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)] | Literal["inf"]
Modalities = Annotated[list[Literal["text", "audio"]], Meta(min_length=1, max_length=2)]
ToolChoice = Literal["auto", "none", "required"] | dict[str, Any]


class Strict(Struct, forbid_unknown_fields=True):
    """A struct that refuses keys it doesn't know."""


class Format(Strict):
    """Encoding of sound; which `rate` goes with which `type` is checked on decoding."""

    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: Literal[8_000, 16_000, 24_000, 48_000] | None = None


class InputTranscription(Strict):
    """Input transcription; `languages`, `keywords` and `delay` are accepted without effect."""

    model: Given[Name] = UNSET
    language: Given[Annotated[str, Meta(max_length=32)]] = UNSET
    prompt: Given[Text] = UNSET
    languages: Annotated[list[Name], Meta(max_length=64)] | None = None
    keywords: Annotated[list[Name], Meta(max_length=1024)] | None = None
    delay: Literal["minimal", "low", "medium", "high", "xhigh"] | None = None


class NoiseReduction(Strict):
    """Kind of microphone."""

    type: Literal["near_field", "far_field"]
    strength: Fraction | None = None


class TurnDetection(Strict):
    """Both kinds of turn detection in one; an update names only the keys that change."""

    type: Literal["server_vad", "semantic_vad"] | None = None
    threshold: Fraction | None = None
    prefix_padding_ms: Milliseconds | None = None
    silence_duration_ms: Milliseconds | None = None
    idle_timeout_ms: int | None = None
    eagerness: Literal["low", "medium", "high", "auto"] | None = None
    create_response: bool | None = None
    interrupt_response: bool | None = None


class AudioInput(Strict):
    """`session.audio.input`."""

    format: Format | None = None
    transcription: Given[InputTranscription] = UNSET
    noise_reduction: Given[NoiseReduction] = UNSET
    turn_detection: Given[TurnDetection] = UNSET


class Voice(Strict):
    """A custom voice."""

    id: Name


class AudioOutput(Strict):
    """`session.audio.output`: kept and shown again, as no sound goes out."""

    format: Given[Format] = UNSET
    voice: Given[Name | Voice] = UNSET
    speed: Given[Annotated[float, Meta(ge=0.25, le=1.5)]] = UNSET


class Audio(Strict):
    """`session.audio`."""

    input: AudioInput | None = None
    output: AudioOutput | None = None


class Tool(Struct):
    """A tool; keys beyond these (`strict`, …) are let through and not kept."""

    type: Name
    name: Name | None = None
    description: Text | None = None
    parameters: dict[str, Any] | None = None


Tools = Annotated[list[Tool], Meta(max_length=128)]


class Reasoning(Strict):
    """How long to think before answering."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class TokenLimits(Strict):
    """Bounds of a retention ratio."""

    post_instructions: Annotated[int, Meta(ge=0)] | None = None


class Retention(Strict):
    """Truncate more than needed at once, so that the cached prefix lives longer."""

    type: Literal["retention_ratio"]
    retention_ratio: Fraction
    token_limits: TokenLimits | None = None


class Session(Strict):
    """The body of `session.update`. `object`, `id` and `expires_at` are the server's: ignored."""

    type: Literal["realtime", "transcription"]
    object: Any = None
    id: Any = None
    expires_at: Any = None
    model: Name | None = None
    output_modalities: Modalities | None = None
    instructions: Text | None = None
    tools: Given[Tools] = UNSET
    tool_choice: Given[ToolChoice] = UNSET
    parallel_tool_calls: Given[bool] = UNSET
    reasoning: Given[Reasoning] = UNSET
    max_output_tokens: MaxOutputTokens | None = None
    truncation: Literal["auto", "disabled"] | Retention | None = None
    tracing: Given[Literal["auto"] | dict[str, Any]] = UNSET
    prompt: Given[dict[str, Any]] = UNSET
    include: Given[
        Annotated[list[Literal["item.input_audio_transcription.logprobs"]], Meta(max_length=8)]
    ] = UNSET
    audio: Audio | None = None


class VideoSession(Session):
    """With a camera (ours): seconds of sound after which its frames get their place in a turn."""

    interleave: Given[Annotated[float, Meta(ge=0.5, le=60)]] = UNSET
