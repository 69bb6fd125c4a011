"""Who may use the pool's threads, on how many cores, and how much may wait for them."""

import threading
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from fake_encoder import RATE_HZ, ScriptedEncoder, ScriptedState

from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.clip import PendingLimits
from sensorium.encoders.media import PICTURE_RATE_HZ, Intake, MediaFrame, Pts, picture
from sensorium.encoders.pool import EncoderPool

SECOND = MediaFrame(pts=Pts(0), rate_hz=RATE_HZ, data=np.zeros(RATE_HZ, np.float32))
LIVE, FILE = ClipHints(), ClipHints(live=False)


def test_one_thread_is_left_for_talkers() -> None:
    encoder = ScriptedEncoder(max_batch=1)
    heard: list[str] = []
    pool = EncoderPool[str](
        {"audio": encoder}, on_output=lambda key, *_: heard.append(key), num_threads=2
    )
    for key, hints in (("film", FILE), ("album", FILE), ("talker", LIVE)):
        pool.open(key, "audio", hints)
    gate_of_the_film = encoder.gate
    gate_of_the_film.clear()
    pool.push("film", SECOND)
    pool.push("album", SECOND)
    first = threading.Thread(target=pool.run_once, daemon=True)
    first.start()
    encoder.entered.wait()
    encoder.gate = threading.Event()
    encoder.gate.set()
    assert not pool.run_once()  # the album must wait for the thread that has the film
    pool.push("talker", SECOND)
    assert pool.run_once()
    gate_of_the_film.set()
    first.join()
    assert heard == ["talker", "film"]
    assert pool.run_once()
    assert heard == ["talker", "film", "album"]


def test_talkers_may_use_all_threads() -> None:
    encoder = ScriptedEncoder(max_batch=1)
    pool = EncoderPool[str]({"audio": encoder}, on_output=lambda *_: None, num_threads=2)
    for key in ("a", "b"):
        pool.open(key, "audio", LIVE)
        pool.push(key, SECOND)
    encoder.gate.clear()
    first = threading.Thread(target=pool.run_once, daemon=True)
    first.start()
    encoder.entered.wait()
    encoder.entered.clear()
    second = threading.Thread(target=pool.run_once, daemon=True)
    second.start()
    assert encoder.entered.wait(60.0)
    encoder.gate.set()
    first.join()
    second.join()


def test_no_thread_takes_more_talkers_than_its_share() -> None:
    encoder = ScriptedEncoder(max_batch=64)
    pool = EncoderPool[str]({"audio": encoder}, on_output=lambda *_: None, num_threads=2)
    for key, hints in (("film", FILE), *((key, LIVE) for key in "abcde")):
        pool.open(key, "audio", hints)
        pool.push(key, SECOND)
    assert pool.run_once()
    assert pool.run_once()
    assert encoder.batches == [("push", 3), ("push", 2)]


class CountingEncoder(ScriptedEncoder):
    """Notes how many threads torch would use for it."""

    def __init__(self) -> None:
        super().__init__()
        self.num_threads: SimpleQueue[int] = SimpleQueue()

    def push(
        self, frames: list[tuple[MediaFrame, ...]], states: list[ScriptedState]
    ) -> list[Output]:
        self.num_threads.put(torch.get_num_threads())
        return super().push(frames, states)


def test_encoders_compute_on_one_core_each_and_the_engine_on_all() -> None:
    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        encoder = CountingEncoder()
        pool = EncoderPool[str]({"audio": encoder}, on_output=lambda *_: None, num_threads=2)
        pool.start()
        pool.open("a", "audio", LIVE)
        pool.push("a", SECOND)
        assert encoder.num_threads.get(timeout=60.0) == 1
        pool.stop()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(usual)


@pytest.mark.parametrize(("num_pictures", "is_too_much"), [(4, False), (5, True)])
def test_waiting_pictures_are_bounded_in_bytes(num_pictures: int, is_too_much: bool) -> None:
    outputs: list[tuple[str, int, Output, bool]] = []
    intake = Intake(
        encoder="eye", rate_hz=PICTURE_RATE_HZ, dtype="uint8", shape=(-1, -1, 3), gives_rows=True
    )
    pool = EncoderPool[str](
        {"image": ScriptedEncoder(intake=intake)},
        on_output=lambda *output: outputs.append(output),
        limits=PendingLimits(max_bytes=12 * 2**20),
    )
    pool.open("album", "image", FILE)
    for second in range(num_pictures):
        pool.push("album", picture(np.zeros((1024, 1024, 3), np.uint8), second / 1000))
    problems = [(taken, output.problem, final) for _, taken, output, final in outputs]
    told = "The encoder couldn't keep up: more than 12 MiB were waiting."
    assert problems == ([(5, told, True)] if is_too_much else [])


def test_frames_may_lie_far_apart_in_time() -> None:
    problems: list[str | None] = []
    intake = Intake(encoder="eye", rate_hz=PICTURE_RATE_HZ, dtype="uint8", shape=(-1, -1, 3))
    pool = EncoderPool[str](
        {"video": ScriptedEncoder(intake=intake)},
        on_output=lambda key, taken, output, final: problems.append(output.problem),
    )
    pool.open("film", "video", FILE)
    for hour in range(5):
        pool.push("film", picture(np.zeros((8, 8, 3), np.uint8), 3600.0 * hour))
    assert problems == []


def test_bytes_that_were_taken_wait_no_more() -> None:
    outputs: list[Output] = []
    pool = EncoderPool[str](
        {"audio": ScriptedEncoder()},
        on_output=lambda key, taken, output, final: outputs.append(output),
        limits=PendingLimits(max_bytes=4 * RATE_HZ),
    )
    pool.open("a", "audio", LIVE)
    for second in range(3):
        at = Pts(second * RATE_HZ)
        pool.push("a", MediaFrame(pts=at, rate_hz=RATE_HZ, data=SECOND.data))
        pool.run_once()
    assert [output.problem for output in outputs] == [None] * 3
