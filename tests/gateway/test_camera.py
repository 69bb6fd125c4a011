"""Frames of a camera before they have a place: counted, bounded, decoded a few at a time."""

import numpy as np
import pytest
from fakes import SEEING_MODEL

from sensorium.encoders.media import picture
from sensorium.gateway.camera import MAX_PICTURE_BYTES, Camera
from sensorium.gateway.client_events import AppendPicture
from sensorium.gateway.errors import PeerError
from sensorium.gateway.media import FileDecoded, FileRefused, FileToDecode, Medium, medium
from sensorium.gateway.outbox import Outbox

RATE_HZ = 16_000


class Rig:
    """A camera of which a turn sees all; `files` lie there to be decoded."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.files: list[FileToDecode] = []
        self.camera = Camera(self.outbox, SEEING_MODEL.intakes, RATE_HZ)
        self.camera.begin_turn("t")

    def show(self, *times_s: float, data: bytes = b"file") -> None:
        """Let frames come, each when so much sound was judged."""
        for time_s in times_s:
            self.camera.append(AppendPicture(data=data), round(time_s * RATE_HZ))
            self.camera.pass_by(round(time_s * RATE_HZ) + 1)
            self.files += self.outbox.take_files()

    def decode(self, file: FileToDecode, shade: int) -> None:
        """Decode a file to a picture of one shade."""
        self.files.remove(file)
        frame = picture(np.full((28, 56, 3), shade, np.uint8))
        made = medium("image", [frame], SEEING_MODEL.intakes["image"])
        assert self.camera.advance(FileDecoded(number=file.number, media=(made,)))
        self.files += self.outbox.take_files()

    def take(self, max_bytes: int = 1 << 30, max_positions: int = 1 << 30) -> tuple[Medium, ...]:
        """Take all frames."""
        return self.camera.take("t", 1 << 40, max_bytes=max_bytes, max_positions=max_positions)


def test_two_files_are_decoded_at_once_and_the_next_after_an_answer() -> None:
    rig = Rig()
    rig.show(1, 2, 3, 4)
    assert [file.number for file in rig.files] == [1, 2]
    assert all(file.is_frame for file in rig.files)
    rig.decode(rig.files[1], 100)
    assert [file.number for file in rig.files] == [1, 3]
    assert not rig.camera.is_settled("t", RATE_HZ + 1)


def test_frames_are_compared_in_the_order_of_their_times() -> None:
    rig = Rig()
    rig.show(1, 2, 3)
    rig.decode(rig.files[1], 100)
    rig.decode(rig.files[1], 103)
    rig.decode(rig.files[0], 100)
    assert rig.camera.is_settled("t", 1 << 40)
    [clip] = rig.take()
    assert (clip.modality, [piece.data[0] for piece in clip.pieces]) == ("image", [100])
    assert rig.camera.counts == {"still": 2, "taken": 1}


def test_clip_is_named_by_its_frames_and_their_times() -> None:
    names = set()
    for times_s, shades in [((1, 2), (50, 99)), ((1, 3), (50, 99)), ((1, 2), (50, 98))]:
        rig = Rig()
        rig.show(*times_s)
        for shade in shades:
            rig.decode(rig.files[0], shade)
        [clip] = rig.take()
        assert [piece.pts for piece in clip.pieces] == [0, (times_s[1] - 1) * 1_000_000]
        names.add(clip.content)
    assert len(names) == 3


def test_late_frames_and_those_too_soon_are_counted_and_never_decoded() -> None:
    rig = Rig()
    rig.show(1, 1, 1.1, 2)
    assert rig.camera.counts == {"late": 1, "skipped": 1}
    assert len(rig.files) == 2


def test_of_frames_that_wait_for_the_detector_the_oldest_are_dropped() -> None:
    rig = Rig()
    for time in range(10):
        rig.camera.append(AppendPicture(data=bytes(MAX_PICTURE_BYTES)), time)
    assert rig.camera.counts == {"dropped": 2}  # 8 MiB may wait
    rig.camera.clear()
    for time in range(100):
        rig.camera.append(AppendPicture(data=b"x"), time)
    assert rig.camera.counts == {"dropped": 2 + 36}


def test_of_frames_that_wait_to_be_decoded_the_oldest_are_dropped() -> None:
    rig = Rig()
    rig.show(*range(1, 40), data=bytes(MAX_PICTURE_BYTES))
    assert rig.camera.counts == {"dropped": 31}  # the model's videos have 8 frames
    late = rig.files[0]
    rig.decode(late, 100)  # an answer that nobody waits for any more
    assert len(rig.files) == 2


def test_frames_beyond_the_room_of_a_turn_are_dropped_the_oldest_first() -> None:
    rig = Rig()
    rig.show(1, 2, 3, 4)
    for shade in (10, 20, 30, 40):
        rig.decode(rig.files[0], shade)
    [clip] = rig.take(max_bytes=2 * 3 * 28 * 56)
    assert [piece.data[0] for piece in clip.pieces] == [30, 40]
    assert rig.camera.counts == {"taken": 2, "dropped": 2}
    rig.show(9, 10)
    for shade in (50, 60):
        rig.decode(rig.files[0], shade)
    assert rig.take(max_positions=3) == ()


@pytest.mark.parametrize("num_bytes", [0, MAX_PICTURE_BYTES + 1])
def test_file_of_a_wrong_size_is_refused(num_bytes: int) -> None:
    with pytest.raises(PeerError, match=f"has {num_bytes} bytes; expected 1 to 1048576") as refused:
        Rig().camera.append(AppendPicture(data=bytes(num_bytes)), 0)
    assert refused.value.param == "image"


def test_answers_about_other_files_are_not_the_cameras() -> None:
    rig = Rig()
    rig.show(1)
    assert not rig.camera.advance(FileRefused(number=99, code="damaged", message="It is damaged."))


def test_frames_of_an_earlier_turn_do_not_come_into_the_next() -> None:
    rig = Rig()
    rig.show(1)
    rig.decode(rig.files[0], 100)
    rig.camera.end_turn()
    rig.camera.begin_turn("u")
    rig.show(2)
    rig.decode(rig.files[0], 200)
    assert rig.camera.is_settled("u", 1 << 40)
    [clip] = rig.camera.take("u", 1 << 40, max_bytes=1 << 30, max_positions=1 << 30)
    assert clip.pieces[0].data[0] == 200
