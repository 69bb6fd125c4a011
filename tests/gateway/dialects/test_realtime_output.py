"""What a response becomes on the wire: its usage by modality, its metadata, its channels."""

import json
from dataclasses import replace
from typing import Any

import pytest
from openai.types.realtime import RealtimeResponse

from sensorium.gateway.dialects.realtime_output import channel_event, response_event
from sensorium.gateway.server_events import (
    ChannelDelta,
    ChannelDone,
    Response,
    ResponseCreated,
    ResponseDone,
    ResponseUsage,
)

OUTPUT = {"format": {"type": "audio/pcm", "rate": 24_000}, "voice": "alloy"}
USAGE = ResponseUsage(
    input_text_tokens=20,
    input_audio_tokens=7,
    input_image_tokens=100,
    cached_tokens=0,
    output_tokens=5,
)
DONE = Response(
    response_id="resp_1",
    status="completed",
    conversation_id="conv_1",
    max_output_tokens=None,
    metadata=None,
    usage=USAGE,
)


def shown(response: Response) -> dict[str, Any]:
    body: dict[str, Any] = response_event(ResponseDone(response=response), OUTPUT)["response"]
    RealtimeResponse.model_validate_json(json.dumps(body))  # what the client's types take
    return body


def test_usage_tells_sound_and_pictures_apart() -> None:
    usage = shown(DONE)["usage"]
    assert (usage["total_tokens"], usage["input_tokens"], usage["output_tokens"]) == (132, 127, 5)
    details = usage["input_token_details"]
    assert [details[f"{kind}_tokens"] for kind in ("text", "audio", "image")] == [20, 7, 100]


@pytest.mark.parametrize(
    ("cached", "text", "audio", "image"),
    [(0, 0, 0, 0), (19, 19, 0, 0), (24, 20, 4, 0), (50, 20, 7, 23), (127, 20, 7, 100)],
)
def test_cached_tokens_add_up_by_modality(cached: int, text: int, audio: int, image: int) -> None:
    body = shown(replace(DONE, usage=replace(USAGE, cached_tokens=cached)))
    details = body["usage"]["input_token_details"]
    assert details["cached_tokens"] == cached
    assert details["cached_tokens_details"] == {
        "text_tokens": text,
        "audio_tokens": audio,
        "image_tokens": image,
    }


def test_metadata_are_shown_as_they_are() -> None:
    named = replace(DONE, metadata={"image_encoder": "labels", "k": "v"})
    assert shown(named)["metadata"] == {"image_encoder": "labels", "k": "v"}
    assert shown(DONE)["metadata"] is None


def test_response_that_has_begun_has_no_usage() -> None:
    begun = replace(DONE, status="in_progress", usage=None)
    event = response_event(ResponseCreated(response=begun), OUTPUT)
    assert event["type"] == "response.created"
    assert (event["response"]["usage"], event["response"]["status_details"]) == (None, None)


def test_channels_have_events_of_their_own() -> None:
    where = {"response_id": "resp_1", "channel": "self"}
    assert channel_event(ChannelDelta(response_id="resp_1", channel="self", text="Hm")) == {
        "type": "response.channel.delta",
        **where,
        "delta": "Hm",
    }
    assert channel_event(ChannelDone(response_id="resp_1", channel="self", end="eot")) == {
        "type": "response.channel.done",
        **where,
        "end": "eot",
    }
