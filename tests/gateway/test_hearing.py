"""A spoken turn keeps its sound where it becomes rows, under the name of all its bytes."""

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sensorium.gateway.hearing import SpokenTurn

SOUND = np.random.default_rng(0).standard_normal(1_000).astype(np.float32)


@given(cuts=st.lists(st.integers(0, 1_000), max_size=8))
def test_recording_is_all_its_sound_under_the_hash_of_its_bytes(cuts: list[int]) -> None:
    turn = SpokenTurn(item_id="a", keeps_sound=True)
    for piece in np.split(SOUND, sorted(cuts)):
        turn.append(piece)
    recording = turn.recording()
    np.testing.assert_array_equal(recording.samples, SOUND)
    assert recording.samples.dtype == np.float32
    assert recording.sha256 == turn.content == hashlib.sha256(SOUND.tobytes()).hexdigest()


def test_turn_that_starts_over_is_the_same_recording() -> None:
    turn = SpokenTurn(item_id="a", keeps_sound=True)
    turn.append(SOUND[:600])
    turn.start_over()
    turn.append(SOUND[600:])
    assert turn.recording().sha256 == hashlib.sha256(SOUND.tobytes()).hexdigest()


def test_sound_that_becomes_words_has_no_name() -> None:
    turn = SpokenTurn(item_id="a")
    turn.append(SOUND)
    assert turn.content == ""
