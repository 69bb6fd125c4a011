"""Media in Realtime events: strict base64 and data URIs, and nothing is ever fetched."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensorium.gateway.dialects.realtime_media import MAX_MEDIA_BYTES, data_uri_bytes, media_bytes
from sensorium.gateway.errors import PeerError


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def refusal(uri: str, kind: str = "image") -> PeerError:
    with pytest.raises(PeerError) as caught:
        data_uri_bytes(uri, kind, "item.content[0].image_url")
    assert (caught.value.code, caught.value.param) == (
        "invalid_value",
        "item.content[0].image_url",
    )
    assert "item.content[0].image_url" in caught.value.message
    return caught.value


@given(st.binary(max_size=100))
def test_bytes_come_back(data: bytes) -> None:
    assert media_bytes(b64(data), "audio") == data
    if data:
        assert data_uri_bytes(f"data:video/mp4;base64,{b64(data)}", "video", "video_url") == data


@pytest.mark.parametrize(
    "head",
    [
        "data:image/png;base64,",
        "data:image/what-we-know-nothing-of;base64,",
        "data:image/png;charset=utf-8;base64,",
    ],
)
def test_media_type_is_not_believed(head: str) -> None:
    assert data_uri_bytes(head + b64(b"x"), "image", "image_url") == b"x"


@pytest.mark.parametrize(
    "uri",
    [
        "https://example.org/cat.png",
        "file:///etc/passwd",
        "data:image/png,AAAA",
        "data:video/mp4;base64,AAAA",
        "data:image/png;base64",
        "image/png;base64,AAAA",
        "",
    ],
)
def test_what_is_no_data_uri_of_the_kind_is_refused(uri: str) -> None:
    error = refusal(uri)
    assert "data:image/…;base64,…; URLs are not fetched" in error.message


def test_long_uri_is_not_repeated_to_its_sender() -> None:
    error = refusal("https://example.org/" + "x" * 10_000)
    assert len(error.message) < 400


def test_empty_file_is_refused() -> None:
    assert "it is empty" in refusal("data:image/png;base64,").message


@pytest.mark.parametrize("text", ["A", "AAA", "AA==AA==", "A-_A", "AA A=", "AAAA\n", "ÄAAA"])
def test_what_is_no_base64_is_refused(text: str) -> None:
    assert "base64" in refusal(f"data:image/png;base64,{text}").message


def test_limit_of_a_part_is_exact() -> None:
    uri = "data:image/png;base64,"
    assert len(data_uri_bytes(uri + b64(bytes(MAX_MEDIA_BYTES)), "image", "p")) == MAX_MEDIA_BYTES
    error = refusal(uri + b64(bytes(MAX_MEDIA_BYTES + 3)))
    assert f"expected at most {MAX_MEDIA_BYTES}" in error.message
