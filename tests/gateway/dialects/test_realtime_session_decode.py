"""Settings as they come in: only what changes, by the names of SessionConfig."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.gateway.client_events import ClientEvent, Malformed, UpdateSession
from sensorium.gateway.configuration import AudioFormat, SessionConfig, Transcription, TurnDetection
from sensorium.gateway.dialects.realtime import RealtimeDialect
from sensorium.gateway.errors import GatewayError
from sensorium.gateway.server_events import SessionUpdated

DETECTION = "session.audio.input.turn_detection"


def changes(**session: Any) -> dict[str, Any]:
    event = {"type": "session.update", "session": {"type": "realtime", **session}}
    decoded = RealtimeDialect(live_transcripts=False).decode(json.dumps(event))
    assert isinstance(decoded, UpdateSession), decoded
    return dict(decoded.changes)


def fault(**session: Any) -> GatewayError:
    event = {"type": "session.update", "session": {"type": "realtime", **session}}
    decoded = RealtimeDialect(live_transcripts=False).decode(json.dumps(event))
    assert isinstance(decoded, Malformed), decoded
    return decoded.error


def hearing(**audio: Any) -> dict[str, Any]:
    return changes(audio={"input": audio})


def test_nothing_given_is_nothing_changed() -> None:
    assert changes() == {}
    assert changes(audio={"input": {}, "output": {}}) == {}
    assert changes(audio=None, instructions=None, max_output_tokens=None, truncation=None) == {}


def test_the_servers_own_keys_are_ignored() -> None:
    assert changes(id="sess_1", object="realtime.session", expires_at=1, model="another") == {}


def test_instructions_can_be_cleared() -> None:
    assert changes(instructions="") == {"instructions": ""}


def test_inf_is_the_servers_limit() -> None:
    assert changes(max_output_tokens="inf") == {"max_output_tokens": None}
    assert changes(max_output_tokens=1) == {"max_output_tokens": 1}


def test_one_key_of_turn_detection_changes_alone() -> None:
    assert hearing(turn_detection={"threshold": 0.8}) == {"turn_detection": {"threshold": 0.8}}
    assert hearing(turn_detection={}) == {"turn_detection": {}}


def test_turn_detection_is_switched_off_by_null_alone() -> None:
    assert hearing(turn_detection=None) == {"turn_detection": None}
    assert hearing() == {}


def test_turn_detection_changes_kind() -> None:
    keys = {"type": "semantic_vad", "eagerness": "low", "interrupt_response": False}
    expected = {"kind": "semantic_vad", "eagerness": "low", "interrupt_response": False}
    assert hearing(turn_detection=keys) == {"turn_detection": expected}


def test_nulls_inside_turn_detection_change_nothing() -> None:
    keys = {"type": "semantic_vad", "threshold": None, "eagerness": None, "idle_timeout_ms": None}
    assert hearing(turn_detection=keys) == {"turn_detection": {"kind": "semantic_vad"}}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [("server_vad", "eagerness", "low"), ("semantic_vad", "silence_duration_ms", 200)],
)
def test_keys_of_the_other_kind_are_refused(kind: str, key: str, value: object) -> None:
    error = fault(audio={"input": {"turn_detection": {"type": kind, key: value}}})
    assert (error.code, error.param) == ("unknown_parameter", f"{DETECTION}.{key}")


def test_an_idle_timeout_is_refused() -> None:
    error = fault(audio={"input": {"turn_detection": {"idle_timeout_ms": 6000}}})
    assert (error.code, error.param) == ("invalid_value", f"{DETECTION}.idle_timeout_ms")
    assert "not supported" in error.message


@pytest.mark.parametrize(
    ("wanted", "encoding", "rate_hz"),
    [
        ({"type": "audio/pcm"}, "pcm16", 24_000),
        ({"type": "audio/pcm", "rate": None}, "pcm16", 24_000),
        ({"type": "audio/pcm", "rate": 24_000}, "pcm16", 24_000),
        ({"type": "audio/pcm", "rate": 16_000}, "pcm16", 16_000),
        ({"type": "audio/pcm", "rate": 48_000}, "pcm16", 48_000),
        ({"type": "audio/pcmu"}, "pcmu", 8_000),
        ({"type": "audio/pcma", "rate": 8_000}, "pcma", 8_000),
    ],
)
def test_input_formats(wanted: dict[str, Any], encoding: str, rate_hz: int) -> None:
    assert hearing(format=wanted) == {"input_format": {"encoding": encoding, "rate_hz": rate_hz}}


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "audio/pcm", "rate": 44_100},
        {"type": "audio/pcm", "rate": 8_000},
        {"type": "audio/pcmu", "rate": 24_000},
    ],
)
@pytest.mark.parametrize("side", ["input", "output"])
def test_rates_that_do_not_fit_are_refused(wanted: dict[str, Any], side: str) -> None:
    error = fault(audio={side: {"format": wanted}})
    assert (error.code, error.param) == ("invalid_value", f"session.audio.{side}.format.rate")


def test_transcription_changes_key_by_key() -> None:
    wanted = {"model": "whisper-1", "languages": ["de"], "keywords": ["Ada"], "delay": "low"}
    assert hearing(transcription=wanted) == {"transcription": {"model": "whisper-1"}}
    assert hearing(transcription={"language": None}) == {"transcription": {"language": None}}
    assert hearing(transcription={}) == {"transcription": {}}
    assert hearing(transcription=None) == {"transcription": None}


def test_noise_reduction_keeps_its_strength_for_the_echo() -> None:
    assert hearing(noise_reduction=None) == {"noise_reduction": None}
    assert hearing(noise_reduction={"type": "far_field", "strength": 0.5}) == {
        "noise_reduction": "far_field",
        "extras": {"audio.input.noise_reduction.strength": 0.5},
    }


def test_a_retention_ratio_is_auto_and_shown_again() -> None:
    ratio = {"type": "retention_ratio", "retention_ratio": 0.5}
    assert changes(truncation=ratio) == {"truncation": "auto", "extras": {"truncation": ratio}}
    assert changes(truncation="disabled") == {
        "truncation": "disabled",
        "extras": {"truncation": None},
    }


def test_audio_output_is_taken_as_text() -> None:
    assert changes(output_modalities=["audio"]) == {}
    error = fault(output_modalities=["text", "audio"])
    assert (error.code, error.param) == ("invalid_value", "session.output_modalities")


def test_transcription_sessions_are_refused() -> None:
    error = fault(type="transcription")
    assert (error.code, error.param) == ("invalid_value", "session.type")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "name": "f"}),
        ("parallel_tool_calls", False),
        ("reasoning", {"effort": "xhigh"}),
        ("tracing", "auto"),
        ("tracing", {"workflow_name": "w"}),
        ("tracing", None),
        ("prompt", {"id": "pmpt_1", "variables": {"town": "Paris"}}),
        ("prompt", None),
        ("include", ["item.input_audio_transcription.logprobs"]),
        ("tools", None),
    ],
)
def test_settings_without_effect_are_kept(name: str, value: object) -> None:
    assert changes(**{name: value}) == {"extras": {name: value}}


def test_output_settings_are_kept_one_by_one() -> None:
    output = {"voice": "marin", "speed": 1.25, "format": {"type": "audio/pcm", "rate": None}}
    assert changes(audio={"output": output}) == {
        "extras": {
            "audio.output.voice": "marin",
            "audio.output.speed": 1.25,
            "audio.output.format": {"type": "audio/pcm", "rate": 24_000},
        }
    }
    assert changes(audio={"output": {"voice": None}}) == {"extras": {"audio.output.voice": None}}


def test_functions_are_kept_as_far_as_the_protocol_knows_them() -> None:
    schema = {"type": "object", "properties": {}}
    tool = {"type": "function", "name": "f", "description": None, "parameters": schema}
    assert changes(tools=[{**tool, "strict": True}]) == {
        "extras": {"tools": [{"type": "function", "name": "f", "parameters": schema}]}
    }


@pytest.mark.parametrize(
    ("tool", "code", "param"),
    [
        ({"type": "mcp", "server_label": "x"}, "unsupported_tool", "session.tools[1].type"),
        ({"type": "function"}, "missing_required_parameter", "session.tools[1].name"),
    ],
)
def test_other_tools_are_refused(tool: dict[str, Any], code: str, param: str) -> None:
    error = fault(tools=[{"type": "function", "name": "f"}, tool])
    assert (error.code, error.param) == (code, param)


def test_free_form_settings_are_bounded() -> None:
    prompt: dict[str, Any] = {"id": "x" * (256 * 1024)}
    error = fault(prompt=prompt)
    assert (error.code, error.param) == ("invalid_value", "session.prompt")
    for _ in range(70):
        prompt = {"id": 1, "variables": prompt} if len(prompt) > 1 else {"id": 1, "variables": {}}
    error = fault(prompt=prompt)
    assert (error.code, error.param) == ("invalid_value", "session.prompt")
    assert "64 levels" in error.message


# --- what is shown can be sent back -------------------------------------------------------------

KEYS_OF_KIND = {
    "server_vad": ("threshold", "prefix_padding_ms", "silence_duration_ms"),
    "semantic_vad": ("eagerness",),
}
short = st.text(max_size=8)
ms = st.integers(0, 60_000)
formats = st.sampled_from(
    [AudioFormat(rate_hz=rate) for rate in (16_000, 24_000, 48_000)]
    + [AudioFormat(encoding="pcmu", rate_hz=8_000), AudioFormat(encoding="pcma", rate_hz=8_000)]
)
detections = st.builds(
    TurnDetection,
    kind=st.sampled_from(["server_vad", "semantic_vad"]),
    threshold=st.floats(0, 1),
    prefix_padding_ms=ms,
    silence_duration_ms=ms,
    eagerness=st.sampled_from(["low", "medium", "high", "auto"]),
    create_response=st.booleans(),
    interrupt_response=st.booleans(),
)
configs = st.builds(
    SessionConfig,
    instructions=short,
    max_output_tokens=st.none() | st.integers(1, 4096),
    truncation=st.sampled_from(["auto", "disabled"]),
    input_format=formats,
    transcription=st.none()
    | st.builds(Transcription, model=st.none() | short, prompt=st.none() | short),
    noise_reduction=st.sampled_from([None, "near_field", "far_field"]),
    turn_detection=st.none() | detections,
    extras=st.just({"audio.output.voice": "marin", "tracing": "auto"}),
)


@given(configs)
def test_the_session_as_shown_decodes_to_itself(config: SessionConfig) -> None:
    shown = SessionUpdated(session_id="sess_1", model="m", expires_at=1, config=config)
    text = RealtimeDialect(live_transcripts=False).encode(shown)
    again = changes(**json.loads(text or "")["session"])
    assert again["instructions"] == config.instructions
    assert again["max_output_tokens"] == config.max_output_tokens
    assert again["truncation"] == config.truncation
    assert again["input_format"] == asdict(config.input_format)
    assert again["noise_reduction"] == config.noise_reduction
    assert again["extras"]["audio.output.voice"] == "marin"
    assert again["extras"]["tracing"] == "auto"
    if config.transcription is None:
        assert again["transcription"] is None
    else:
        assert Transcription(**again["transcription"]) == config.transcription
    if config.turn_detection is None:
        assert again["turn_detection"] is None
    else:
        kind = config.turn_detection.kind
        names = ("kind", "create_response", "interrupt_response", *KEYS_OF_KIND[kind])
        expected = asdict(config.turn_detection)
        assert again["turn_detection"] == {name: expected[name] for name in names}


# --- a camera -------------------------------------------------------------------------------------


def decode_video(session: dict[str, Any]) -> ClientEvent:
    event = {"type": "session.update", "session": {"type": "realtime", **session}}
    return RealtimeDialect(live_transcripts=False, video=True).decode(json.dumps(event))


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        ({}, {}),
        ({"interleave": 2.5}, {"interleave": 2.5}),
        ({"interleave": None}, {"interleave": None}),
    ],
)
def test_interleave_is_seconds_or_null_and_absent_is_unchanged(
    session: dict[str, Any], expected: dict[str, Any]
) -> None:
    decoded = decode_video(session)
    assert isinstance(decoded, UpdateSession)
    assert decoded.changes == expected


@pytest.mark.parametrize("seconds", [0.4, 61, "2", True])
def test_interleave_out_of_range_is_named(seconds: object) -> None:
    decoded = decode_video({"interleave": seconds})
    assert isinstance(decoded, Malformed)
    assert decoded.error.param == "session.interleave"
    assert "a number from 0.5 to 60 or null" in decoded.error.message


def test_a_client_with_a_camera_may_say_all_that_others_may() -> None:
    decoded = decode_video({"instructions": "Be brief.", "audio": {"input": {"format": None}}})
    assert isinstance(decoded, UpdateSession)
    assert decoded.changes == {"instructions": "Be brief."}
