"""Items, sound and responses as they come in."""

import base64
import json
from typing import Any

import pytest

from sensorium.gateway.client_events import (
    AppendAudio,
    AppendPicture,
    CancelResponse,
    ClearAudio,
    ClientEvent,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    Malformed,
    RetrieveItem,
    TruncateItem,
)
from sensorium.gateway.dialects.realtime import RealtimeDialect
from sensorium.gateway.errors import GatewayError
from sensorium.gateway.items import AudioPart, Item, ItemReference, PicturePart, TextPart, VideoPart

MAX_SOUND_BYTES = 15 * 1024 * 1024


def decode(event: dict[str, Any]) -> ClientEvent:
    return RealtimeDialect(live_transcripts=False).decode(json.dumps(event))


def decode_video(event: dict[str, Any]) -> ClientEvent:
    return RealtimeDialect(live_transcripts=False, video=True).decode(json.dumps(event))


def fault(event: dict[str, Any]) -> GatewayError:
    decoded = decode(event)
    assert isinstance(decoded, Malformed), decoded
    return decoded.error


def message(*content: dict[str, Any], role: str = "user", **keys: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(content), **keys}


def create(item: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": item, **keys}


def append(audio: str) -> dict[str, Any]:
    return {"type": "input_audio_buffer.append", "audio": audio}


def created(item: dict[str, Any]) -> Item:
    event = decode(create(item))
    assert isinstance(event, CreateItem), event
    return event.item


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "input_audio_buffer.commit"}, CommitAudio(event_id="e")),
        ({"type": "input_audio_buffer.clear"}, ClearAudio(event_id="e")),
        (
            {"type": "conversation.item.retrieve", "item_id": "i"},
            RetrieveItem(item_id="i", event_id="e"),
        ),
        (
            {"type": "conversation.item.delete", "item_id": "i"},
            DeleteItem(item_id="i", event_id="e"),
        ),
        (
            {
                "type": "conversation.item.truncate",
                "item_id": "i",
                "content_index": 0,
                "audio_end_ms": 9,
            },
            TruncateItem(item_id="i", event_id="e"),
        ),
        ({"type": "response.cancel"}, CancelResponse(event_id="e")),
        (
            {"type": "response.cancel", "response_id": "r"},
            CancelResponse(response_id="r", event_id="e"),
        ),
        ({"type": "response.create"}, CreateResponse(event_id="e")),
        ({"type": "response.create", "response": None}, CreateResponse(event_id="e")),
    ],
)
def test_plain_events_keep_their_fields(event: dict[str, Any], expected: ClientEvent) -> None:
    assert decode({**event, "event_id": "e"}) == expected


# --- sound --------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\0", b"\1\2\3", bytes(range(256)) * 4])
def test_sound_of_any_length_arrives(data: bytes) -> None:
    assert decode(append(b64(data))) == AppendAudio(data=data)


@pytest.mark.parametrize(
    "audio", ["A", "AAA", "AAA=A", "AA==AA==", "A-_A", "AA A", "AAAA\n", "éééé", "=", "data:AAAA"]
)
def test_base64_is_strict(audio: str) -> None:
    error = fault(append(audio))
    assert (error.code, error.param) == ("invalid_value", "audio")
    assert "base64" in error.message


def test_the_largest_append_is_taken_and_a_larger_one_is_not() -> None:
    largest = decode(append(b64(bytes(MAX_SOUND_BYTES))))
    assert isinstance(largest, AppendAudio)
    assert len(largest.data) == MAX_SOUND_BYTES
    error = fault(append(b64(bytes(MAX_SOUND_BYTES + 1))))
    assert (error.code, error.param) == ("invalid_value", "audio")
    assert str(MAX_SOUND_BYTES) in error.message


# --- items --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        ("system", "input_text"),
        ("user", "input_text"),
        ("assistant", "output_text"),
        ("assistant", "text"),
    ],
)
def test_text_messages(role: Any, kind: str) -> None:
    item = created(message({"type": kind, "text": "Hi"}, role=role, id="mine"))
    assert item == Item(item_id="mine", role=role, content=(TextPart(text="Hi"),))


def test_nulls_for_what_does_not_apply_are_accepted() -> None:
    part = {"type": "input_text", "text": "Hi", "audio": None, "transcript": None, "detail": None}
    item = created(message(part, id=None, status=None, object=None))
    assert item == Item(item_id="", role="user", content=(TextPart(text="Hi"),))


def test_inline_sound_keeps_its_transcript() -> None:
    item = created(message({"type": "input_audio", "audio": b64(b"\1\2"), "transcript": "oh"}))
    assert item.content == (AudioPart(transcript="oh", data=b"\1\2"),)


def test_sound_without_its_bytes_needs_a_transcript() -> None:
    item = created(message({"type": "input_audio", "transcript": "oh"}))
    assert item.content == (AudioPart(transcript="oh"),)
    error = fault(create(message({"type": "input_audio"})))
    assert (error.code, error.param) == ("missing_required_parameter", "item.content[0].audio")


@pytest.mark.parametrize("detail", ["auto", "low", "high", None])
def test_pictures_and_videos_come_as_data_uris(detail: Any) -> None:
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{b64(b'PNG')}"}
    film = {"type": "input_video", "video_url": f"data:video/mp4;base64,{b64(b'MP4')}"}
    item = created(message(picture | {"detail": detail}, film))
    seen = PicturePart(data=b"PNG", detail=detail or "auto")
    assert item.content == (seen, VideoPart(data=b"MP4"))


def test_a_cut_off_message_stays_one() -> None:
    part = {"type": "output_text", "text": "I w"}
    assert created(message(part, role="assistant", status="incomplete")).status == "incomplete"
    assert created(message(part, role="assistant", status="in_progress")).status == "completed"


def test_the_place_of_an_item_is_kept() -> None:
    item = message({"type": "input_text", "text": "Hi"})
    for place in (None, "root", "item_1"):
        event = decode(create(item, previous_item_id=place))
        assert isinstance(event, CreateItem)
        assert event.previous_item_id == place


@pytest.mark.parametrize(
    ("part", "role", "code", "param", "right"),
    [
        (
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            "system",
            "unsupported_content",
            "type",
            "input_text",
        ),
        (
            {"type": "input_image", "image_url": "https://example.org/cat.png"},
            "user",
            "invalid_value",
            "image_url",
            "URLs are not fetched",
        ),
        (
            {"type": "input_image", "image_url": "data:image/png;base64,A"},
            "user",
            "invalid_value",
            "image_url",
            "base64",
        ),
        (
            {"type": "input_image", "image_url": "data:image/png;base64,"},
            "user",
            "invalid_value",
            "image_url",
            "it is empty",
        ),
        (
            {"type": "input_video", "video_url": "data:image/png;base64,AAAA"},
            "user",
            "invalid_value",
            "video_url",
            "data:video/",
        ),
        (
            {"type": "input_hologram"},
            "user",
            "invalid_value",
            "type",
            "input_video",
        ),
        ({"type": "input_video"}, "user", "missing_required_parameter", "video_url", "a data URI"),
        ({"type": "output_audio"}, "assistant", "unsupported_content", "type", "output_text"),
        ({"type": "input_text", "text": ""}, "assistant", "unsupported_content", "type", "output"),
        (
            {"type": "input_audio", "audio": ""},
            "system",
            "unsupported_content",
            "type",
            "input_text",
        ),
        ({"type": "input_text"}, "user", "missing_required_parameter", "text", "a string"),
        (
            {"type": "input_text", "text": "", "audio": ""},
            "user",
            "unknown_parameter",
            "audio",
            "input_text",
        ),
        ({"type": "input_audio", "audio": "?"}, "user", "invalid_value", "audio", "base64"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    part: dict[str, Any], role: str, code: str, param: str, right: str
) -> None:
    good = {"type": "output_text" if role == "assistant" else "input_text", "text": "Hi"}
    error = fault(create(message(good, part, role=role)))
    assert (error.code, error.param) == (code, f"item.content[1].{param}")
    assert right in error.message


@pytest.mark.parametrize(
    "kind",
    [
        "function_call",
        "function_call_output",
        "mcp_list_tools",
        "mcp_call",
        "mcp_approval_request",
        "mcp_approval_response",
    ],
)
def test_items_of_tools_are_refused_by_name(kind: str) -> None:
    item = {"type": kind, "id": "x" * 99, "call_id": "c", "output": "{}", "whatever": [1]}
    error = fault(create(item))
    assert (error.code, error.param) == ("unsupported_item", "item.type")
    assert kind in error.message
    assert "'message'" in error.message
    nested = fault({"type": "response.create", "response": {"input": [item]}})
    assert (nested.code, nested.param) == ("unsupported_item", "response.input[0].type")


def test_root_is_no_id() -> None:
    error = fault(create(message(id="root")))
    assert (error.code, error.param) == ("invalid_value", "item.id")


def test_the_parts_of_an_item_share_one_bound() -> None:
    part = {"type": "input_text", "text": "x" * (128 * 1024)}
    assert len(created(message(part, part)).content) == 2
    error = fault(create(message(part, part, {"type": "input_text", "text": "x"})))
    assert (error.code, error.param) == ("invalid_value", "item.content")
    assert "at most 262144" in error.message


def test_a_reference_is_no_item_to_create() -> None:
    error = fault(create({"type": "item_reference", "id": "item_1"}))
    assert (error.code, error.param) == ("invalid_value", "item.type")


# --- responses ----------------------------------------------------------------------------------


def test_a_response_with_everything() -> None:
    event = decode(
        {
            "type": "response.create",
            "response": {
                "conversation": "none",
                "instructions": "Count.",
                "max_output_tokens": 9,
                "metadata": {"topic": "numbers"},
                "input": [
                    {"type": "item_reference", "id": "item_1"},
                    message({"type": "input_text", "text": "One?"}),
                ],
                "output_modalities": ["audio"],
                "tools": [],
                "tool_choice": "none",
                "parallel_tool_calls": True,
                "reasoning": {"effort": "low"},
                "prompt": None,
                "audio": {"output": {"voice": "marin", "format": {"type": "audio/pcm"}}},
            },
        }
    )
    item = Item(item_id="", role="user", content=(TextPart(text="One?"),))
    assert event == CreateResponse(
        instructions="Count.",
        max_output_tokens=9,
        out_of_band=True,
        input=(ItemReference(item_id="item_1"), item),
        metadata={"topic": "numbers"},
    )


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_video", "video_url": "data:video/mp4;base64,AAAA"},
        {"type": "input_audio", "audio": "AAAA"},
    ],
)
def test_media_cannot_stand_in_the_input_of_a_response(part: dict[str, Any]) -> None:
    given = [message({"type": "input_text", "text": "Hi"}), message(part)]
    error = fault({"type": "response.create", "response": {"input": given}})
    assert (error.code, error.param) == ("unsupported_content", "response.input[1].content")
    assert "create the item first and name it here by an item_reference" in error.message


def test_null_means_as_the_session() -> None:
    keys = ("instructions", "conversation", "input", "metadata", "max_output_tokens", "tools")
    event = decode({"type": "response.create", "response": dict.fromkeys(keys)})
    assert event == CreateResponse()


def test_an_empty_input_is_an_empty_context() -> None:
    event = decode({"type": "response.create", "response": {"input": []}})
    assert event == CreateResponse(input=())


def test_empty_instructions_differ_from_none() -> None:
    event = decode({"type": "response.create", "response": {"instructions": ""}})
    assert event == CreateResponse(instructions="")


def test_two_modalities_at_once_are_refused() -> None:
    error = fault({"type": "response.create", "response": {"output_modalities": ["text", "audio"]}})
    assert (error.code, error.param) == ("invalid_value", "response.output_modalities")


# --- a camera -------------------------------------------------------------------------------------


def test_frame_is_a_pictures_file_as_base64() -> None:
    event = {"type": "input_image_buffer.append", "image": b64(b"jpeg"), "event_id": "e"}
    assert decode_video(event) == AppendPicture(data=b"jpeg", event_id="e")


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("!", "expected base64"),
        ("A" * (4 * 349_526 + 4), "about 1048581 bytes; expected at most 1048576."),
    ],
)
def test_frame_that_cannot_be_read_is_named(image: str, message: str) -> None:
    decoded = decode_video({"type": "input_image_buffer.append", "image": image})
    assert isinstance(decoded, Malformed)
    assert (decoded.error.code, decoded.error.param) == ("invalid_value", "image")
    assert message in decoded.error.message


def test_frame_of_the_most_bytes_is_taken() -> None:
    event = {"type": "input_image_buffer.append", "image": b64(bytes(1 << 20))}
    assert decode_video(event) == AppendPicture(data=bytes(1 << 20))
