"""Videos as words, with the real EfficientNet-lite0."""

import re

import numpy as np
import pytest
import torch
from pictures import load_picture

from sensorium.core.sources import resolve
from sensorium.encoders.base import ClipHints
from sensorium.encoders.media import MediaFrame, Pixels, picture
from sensorium.encoders.video_words import MAX_SCENES, VideoWords

LEOPARD, ORANGE = load_picture("leopard.jpg"), load_picture("grapefruit_slice.jpg")
GREY: Pixels = np.full((224, 224, 3), 128, np.uint8)


@pytest.fixture(scope="module")
def encoder() -> VideoWords:
    torch.set_num_threads(1)
    return VideoWords(resolve("efficientnet-lite0"))


def describe(encoder: VideoWords, frames: list[MediaFrame], at_once: int) -> str:
    """Push a clip, some frames at once, and flush it."""
    state = encoder.open(ClipHints())
    text = ""
    for first in range(0, len(frames), at_once):
        [output] = encoder.push([tuple(frames[first : first + at_once])], [state])
        text += output.text
    return text + encoder.flush([state])[0].text


def a_second_each(*pictures: Pixels) -> list[MediaFrame]:
    return [picture(pixels, float(second)) for second, pixels in enumerate(pictures)]


def test_what_is_seen_is_said_where_it_changes(encoder: VideoWords) -> None:
    text = describe(encoder, a_second_each(LEOPARD, LEOPARD, ORANGE, ORANGE, LEOPARD), 5)
    leopard, orange = r"leopard 9\d %", r"orange \d\d %"
    assert re.fullmatch(rf" \[video: 0 s: {leopard}; 2 s: {orange}; 4 s: {leopard}\]", text)


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_a_camera_is_described_as_a_file_is(encoder: VideoWords, at_once: int) -> None:
    frames = a_second_each(LEOPARD, ORANGE, GREY, ORANGE, LEOPARD)
    assert describe(encoder, frames, at_once) == describe(encoder, frames, len(frames))


def test_a_frame_that_shows_nothing_interrupts_nothing(encoder: VideoWords) -> None:
    text = describe(encoder, a_second_each(LEOPARD, GREY, LEOPARD), 3)
    assert re.fullmatch(r" \[video: 0 s: leopard 9\d %\]", text)


def test_what_a_camera_shows_for_hours_is_bounded(encoder: VideoWords) -> None:
    frames = a_second_each(*[LEOPARD, ORANGE] * (MAX_SCENES // 2 + 2))
    text = describe(encoder, frames, 4)
    assert text.count(" s: ") == MAX_SCENES
    assert text.endswith("%]")


def test_clips_of_a_batch_are_apart(encoder: VideoWords) -> None:
    states = [encoder.open(ClipHints()) for _ in range(2)]
    frames = [tuple(a_second_each(LEOPARD, ORANGE)), tuple(a_second_each(ORANGE))]
    first, second = encoder.push(frames, states)
    assert first.text.startswith(" [video: 0 s: leopard")
    assert re.fullmatch(r" \[video: 0 s: orange \d\d %", second.text)
    assert [o.text for o in encoder.flush(states)] == ["]", "]"]
    assert first.encoder == encoder.intake.encoder == "efficientnet-lite0"


def test_a_clip_without_a_frame_has_a_problem(encoder: VideoWords) -> None:
    [output] = encoder.flush([encoder.open(ClipHints())])
    assert (output.text, output.problem) == ("", "There was no frame to look at.")
