"""Which clips the pool encodes together and when: mostly driven by hand, without threads."""

import logging
from dataclasses import dataclass, field

import numpy as np
import pytest
from fake_encoder import RATE_HZ, ScriptedEncoder

from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.media import MediaFrame, Pts
from sensorium.encoders.pool import EncoderPool


def sound(seconds: float, *, at_s: float = 0.0) -> MediaFrame:
    samples = np.zeros(round(seconds * RATE_HZ), np.float32)
    return MediaFrame(pts=Pts(round(at_s * RATE_HZ)), rate_hz=RATE_HZ, data=samples)


@dataclass
class Bench:
    """A pool driven by hand, with a clock that only moves when told."""

    encoder: ScriptedEncoder = field(default_factory=ScriptedEncoder)
    outputs: list[tuple[str, int, Output, bool]] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.pool = EncoderPool[str](
            {"audio": self.encoder},
            on_output=lambda *output: self.outputs.append(output),
            clock=lambda: self.now,
        )

    def open(self, *keys: str, prompt: str = "", live: bool = True) -> None:
        for key in keys:
            self.pool.open(key, "audio", ClipHints(prompt=prompt, live=live))

    def run(self) -> None:
        while self.pool.run_once():
            pass

    def text(self, key: str) -> str:
        return "".join(output.text for k, _, output, _ in self.outputs if k == key)

    def finals(self) -> list[str]:
        return [key for key, _, _, final in self.outputs if final]


def test_ready_clips_share_one_batch() -> None:
    bench = Bench()
    bench.open("a", "b", "c")
    bench.pool.push("a", sound(1.0))
    bench.pool.push("b", sound(1.5))
    bench.pool.push("c", sound(0.5))
    bench.run()
    assert bench.encoder.batches == [("push", 2)]
    assert [(key, taken) for key, taken, _, _ in bench.outputs] == [("a", 16_000), ("b", 24_000)]


def test_packets_are_joined_and_nothing_is_lost() -> None:
    bench = Bench()
    bench.open("a")
    for i in range(150):
        bench.pool.push("a", sound(0.02, at_s=i * 0.02))
        bench.run()
    bench.pool.close("a")
    bench.run()
    assert bench.text("a") == " word0 word1 word2"
    assert sum(taken for _, taken, _, _ in bench.outputs) == 3 * RATE_HZ
    assert bench.finals() == ["a"]


def test_a_busy_pool_skips_grid_points() -> None:
    bench = Bench()
    bench.open("a")
    for i in range(4):
        bench.pool.push("a", sound(1.0, at_s=i))
    bench.run()
    assert bench.encoder.batches == [("push", 1)]


def test_a_finished_talker_goes_first() -> None:
    bench = Bench()
    bench.open("talking", "done")
    bench.pool.push("talking", sound(1.0))
    bench.now = 1.0
    bench.pool.push("done", sound(0.5))
    bench.pool.close("done")
    bench.pool.run_once()
    assert bench.finals() == ["done"]


def test_finished_clips_are_flushed_together() -> None:
    bench = Bench()
    bench.open("a", "b")
    for key in ("a", "b"):
        bench.pool.push(key, sound(0.5))
        bench.pool.close(key)
    bench.run()
    assert bench.encoder.batches == [("push", 2), ("flush", 2)]


def test_the_oldest_go_first_when_a_batch_is_full() -> None:
    bench = Bench()
    keys = [f"clip{i}" for i in range(10)]
    bench.open(*keys)
    for key in reversed(keys):
        bench.now += 0.1
        bench.pool.push(key, sound(1.0))
    bench.pool.run_once()
    assert [key for key, *_ in bench.outputs] == [f"clip{i}" for i in range(9, 5, -1)]


def test_files_wait_for_talkers_but_not_for_ever() -> None:
    bench = Bench()
    bench.open("file", live=False)
    bench.open("talker")
    bench.pool.push("file", sound(1.0))
    bench.now = 1.0
    bench.pool.push("talker", sound(1.0))
    bench.pool.run_once()
    assert bench.outputs[-1][0] == "talker"
    bench.now = 7.0
    bench.pool.push("talker", sound(1.0, at_s=1.0))
    bench.pool.run_once()
    assert bench.outputs[-1][0] == "file"


def test_a_long_file_is_encoded_in_pieces_between_which_others_get_their_turn() -> None:
    bench = Bench()
    bench.open("file", live=False)
    bench.open("talker")
    bench.pool.push("file", sound(70.0))
    bench.pool.close("file")
    bench.pool.push("talker", sound(1.0))
    bench.now = 100.0
    bench.run()
    taken = [(key, num_samples / RATE_HZ) for key, num_samples, _, final in bench.outputs]
    assert taken == [("talker", 1.0), ("file", 30.0), ("file", 30.0), ("file", 10.0), ("file", 0.0)]
    assert bench.finals() == ["file"]
    assert bench.text("file").endswith(" word69")


def test_only_the_failing_clip_ends(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.open("a", "b")
    bench.open("bad", prompt="poison")
    for key in ("a", "bad", "b"):
        bench.pool.push(key, sound(2.0))
    with caplog.at_level(logging.WARNING):
        bench.run()
    assert bench.finals() == ["bad"]
    assert [output.problem for key, _, output, _ in bench.outputs if key == "bad"] == [
        "The encoder failed on this clip."
    ]
    assert [bench.text("a"), bench.text("b")] == [" word0", " word0"]
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_sound_after_close_or_drop_is_ignored() -> None:
    bench = Bench()
    bench.open("closed", "dropped")
    bench.pool.close("closed")
    bench.pool.drop("dropped")
    bench.pool.push("closed", sound(1.0))
    bench.pool.push("dropped", sound(1.0))
    bench.pool.close("dropped")
    bench.run()
    assert bench.encoder.batches == [("flush", 1)]
    assert bench.finals() == ["closed"]


def test_a_clip_dropped_during_its_batch_says_nothing() -> None:
    bench = Bench()
    bench.open("a")
    outputs: list[str] = []
    pool = EncoderPool[str]({"audio": bench.encoder}, on_output=lambda key, *_: outputs.append(key))
    pool.open("a", "audio", ClipHints())
    bench.encoder.gate.clear()
    pool.start()
    pool.push("a", sound(1.0))
    bench.encoder.entered.wait()
    pool.drop("a")
    bench.encoder.gate.set()
    pool.stop()
    assert outputs == []


def test_stop_during_a_batch_joins_the_threads() -> None:
    encoder = ScriptedEncoder()
    pool = EncoderPool[str]({"audio": encoder}, on_output=lambda *_: None, num_threads=2)
    pool.open("a", "audio", ClipHints())
    encoder.gate.clear()
    pool.start()
    pool.push("a", sound(1.0))
    encoder.entered.wait()
    encoder.gate.set()
    pool.stop()
    pool.push("a", sound(1.0))
    assert not pool.run_once()


def test_a_closing_clip_is_flushed_after_the_batch_it_is_in() -> None:
    bench = Bench()
    closed_during_push: list[bool] = []

    def on_output(key: str, num_samples: int, output: Output, final: bool) -> None:
        bench.outputs.append((key, num_samples, output, final))
        if not closed_during_push:
            closed_during_push.append(True)
            pool.close(key)

    pool = EncoderPool[str]({"audio": bench.encoder}, on_output=on_output)
    pool.open("a", "audio", ClipHints())
    pool.push("a", sound(1.0))
    while pool.run_once():
        pass
    assert bench.encoder.batches == [("push", 1), ("flush", 1)]
    assert bench.text("a") == " word0"


def test_too_much_waiting_sound_ends_the_clip_with_a_reason() -> None:
    bench = Bench()
    bench.open("a")
    for i in range(10):
        bench.pool.push("a", sound(100.0, at_s=100.0 * i))
    ((key, taken, output, final),) = bench.outputs
    assert (key, taken, final) == ("a", 1000 * RATE_HZ, True)
    assert output.problem is not None
    assert "900 seconds" in output.problem


def test_an_unknown_modality_is_a_problem_not_an_exception() -> None:
    bench = Bench()
    bench.pool.open("a", "video", ClipHints())
    ((_, _, output, final),) = bench.outputs
    assert final
    assert output.problem == "This server has no encoder for 'video' (it has: audio)."


def test_lag_is_the_age_of_the_oldest_talker_who_waits() -> None:
    bench = Bench()
    bench.open("file", live=False)
    bench.pool.push("file", sound(10.0))
    bench.now = 1.0
    assert bench.pool.load().lag_s == 0.0
    bench.open("a", "b")
    bench.pool.push("a", sound(1.0))
    bench.now = 3.0
    bench.pool.push("b", sound(1.0))
    bench.now = 4.0
    assert bench.pool.load().lag_s == 3.0
    bench.run()
    assert bench.pool.load().lag_s == 0.0


def test_the_end_is_prepared_once_nothing_else_is_to_do() -> None:
    bench = Bench()
    bench.open("pausing", "talking", "closing")
    bench.pool.push("pausing", sound(0.5))
    bench.pool.anticipate("pausing")
    bench.pool.push("talking", sound(1.0))
    bench.pool.push("closing", sound(0.5))
    bench.pool.close("closing")
    bench.run()
    calls = [call for call, _ in bench.encoder.batches]
    assert calls == ["push", "flush", "push", "push", "anticipate"]
    assert bench.pool.load().lag_s == 0.0


def test_a_clip_that_closes_is_not_prepared_any_more() -> None:
    bench = Bench()
    bench.open("a")
    bench.pool.push("a", sound(0.5))
    bench.pool.anticipate("a")
    bench.pool.close("a")
    bench.run()
    assert [call for call, _ in bench.encoder.batches] == ["push", "flush"]


def test_a_failed_preparation_ends_nobody(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.open("a", prompt="poison")
    bench.pool.anticipate("a")
    bench.run()
    assert bench.outputs == []
    assert "prepare" in caplog.text


def test_waiting_preparation_is_no_lag() -> None:
    bench = Bench()
    bench.open("a")
    bench.pool.push("a", sound(0.5))
    bench.pool.anticipate("a")
    bench.now += 9.0
    assert bench.pool.load().lag_s == 0.0


def test_no_end_is_prepared_at_the_cost_of_many_others() -> None:
    bench = Bench()
    bench.open("a", "b", "c", "d")
    bench.pool.push("a", sound(0.5))
    bench.pool.anticipate("a")
    bench.run()
    assert bench.encoder.batches == []
