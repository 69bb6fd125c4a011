"""A session over a model that takes sound at 24 kHz and makes rows of it, no words."""

import hashlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fakes import ROWS_MODEL
from hypothesis import given, settings
from hypothesis import strategies as st
from session_rig import Rig

from sensorium.core.api import AppendMedia, CloseSpan, OpenSpan
from sensorium.encoders.media import Intake, Samples
from sensorium.gateway.client_events import (
    AppendAudio,
    ClearAudio,
    CommitAudio,
    RetrieveItem,
    UpdateSession,
)
from sensorium.gateway.items import AudioPart
from sensorium.gateway.server_events import (
    AudioCommitted,
    ErrorRaised,
    ItemRetrieved,
    ResponseDone,
    SpeechStarted,
    SpeechStopped,
    TranscriptCompleted,
    TranscriptDelta,
    TranscriptFailed,
)

RATE_HZ = 24_000
ROW = 1920
TRANSCRIBE = UpdateSession(changes={"transcription": {"model": "default"}})
MANUAL = UpdateSession(changes={"turn_detection": None})
NOISE = (np.random.default_rng(0).uniform(-0.5, 0.5, 4 * RATE_HZ) * 32767).astype("<i2")


def rig(*, live: bool = False, auto: bool = True) -> Rig:
    return Rig(model=ROWS_MODEL, live=live, auto=auto)


def sent(made: Rig) -> Samples:
    """Return the sound that the engine was given for the last span."""
    last = [r.span_id for r in made.asked if isinstance(r, OpenSpan)][-1]
    pieces = [r for r in made.asked if isinstance(r, AppendMedia) and r.span_id == last]
    assert [r.pts for r in pieces] == np.cumsum([0, *(r.shape[0] for r in pieces[:-1])]).tolist()
    return np.concatenate([np.frombuffer(r.data, np.float32) for r in pieces])


def test_turn_without_a_transcript_is_answered() -> None:
    made = rig()
    made.silence(0.5)
    made.speak(1.0)
    made.silence(1.0)
    [started], [stopped] = made.of(SpeechStarted), made.of(SpeechStopped)
    assert 100 <= started.audio_start_ms <= 260  # speech at 500 ms less 300 ms of padding
    assert 1900 <= stopped.audio_end_ms <= 2200  # end at 1500 ms plus 500 ms of silence
    assert made.of(ResponseDone)[0].response.status == "completed"
    made.send(RetrieveItem(item_id=started.item_id))
    assert made.of(ItemRetrieved)[0].item.content == (AudioPart(transcript=None),)


def test_turn_of_which_nothing_was_made_is_not_answered() -> None:
    made = rig()
    made.engine.problem = "This can't be heard."
    made.speak(1.0)
    made.silence(1.0)
    assert made.of(AudioCommitted)
    assert not made.of(ResponseDone)


@pytest.mark.parametrize("live", [False, True])
def test_peer_that_wants_words_is_told_once_a_turn_that_there_are_none(live: bool) -> None:
    made = rig(live=live)
    made.send(TRANSCRIBE)
    for _ in range(2):
        made.speak(1.0)
        made.silence(1.0)
    failures = made.of(TranscriptFailed)
    assert [e.item_id for e in failures] == [e.item_id for e in made.of(AudioCommitted)]
    assert {e.code for e in failures} == {"transcription_unavailable"}
    assert "as embeddings, not as words: fake-ears" in failures[0].message
    assert not made.of(TranscriptCompleted)
    assert not made.of(TranscriptDelta)


def test_peer_that_wants_no_words_is_told_nothing_of_them() -> None:
    made = rig()
    made.speak(1.0)
    made.silence(1.0)
    assert made.of(AudioCommitted)
    assert not made.of(TranscriptFailed)


def test_problem_is_told_where_there_is_one() -> None:
    made = rig()
    made.engine.problem = "This can't be heard."
    made.send(TRANSCRIBE)
    made.speak(1.0)
    made.silence(1.0)
    assert [e.message for e in made.of(TranscriptFailed)] == ["This can't be heard."]


@given(cuts=st.lists(st.integers(0, 2 * len(NOISE)), max_size=20))
@settings(max_examples=15, deadline=None)
def test_sound_reaches_the_engine_as_it_was_sent_in_any_packets(cuts: list[int]) -> None:
    made = rig()
    made.send(MANUAL)
    data = NOISE.tobytes()
    edges = [0, *sorted(cuts), len(data)]
    made.send(*(AppendAudio(data=data[i:j]) for i, j in pairwise(edges)))
    made.send(CommitAudio())
    np.testing.assert_array_equal(sent(made), NOISE.astype(np.float32) / 32768)


@pytest.mark.parametrize(
    ("change", "unheard"),
    [
        (MANUAL, 0),
        (
            UpdateSession(changes={}),
            480 + 767,
        ),  # what the verdict is late, and a window that isn't whole
    ],
)
def test_only_a_begun_row_is_left_for_the_commit(change: UpdateSession, unheard: int) -> None:
    made = rig(auto=False)
    made.send(change)
    for end in range(480, len(NOISE) + 1, 480):
        made.send(AppendAudio(data=NOISE[end - 480 : end].tobytes()))
        if end >= 5 * 768:  # a turn has begun
            num_sent = sum(r.shape[0] for r in made.asked if isinstance(r, AppendMedia))
            assert num_sent // ROW >= (end - unheard) // ROW


def test_closed_span_is_named_by_its_sound() -> None:
    made = rig()
    made.speak(1.0)
    made.silence(1.0)
    [close] = [r for r in made.asked if isinstance(r, CloseSpan)]
    assert close.content == hashlib.sha256(sent(made).tobytes()).hexdigest()


def test_words_have_no_name_for_their_sound() -> None:
    made = Rig()
    made.speak(1.0)
    made.silence(1.0)
    assert [r.content for r in made.asked if isinstance(r, CloseSpan)] == [""]


def test_commit_hands_over_what_still_waits_for_its_verdict() -> None:
    made = rig()
    made.send(AppendAudio(data=NOISE[: RATE_HZ + 333].tobytes()), CommitAudio())
    np.testing.assert_array_equal(sent(made), NOISE[: RATE_HZ + 333].astype(np.float32) / 32768)


def test_nothing_of_cleared_sound_is_heard() -> None:
    made = rig()
    made.send(AppendAudio(data=NOISE[:5_000].tobytes()), ClearAudio())
    made.send(AppendAudio(data=NOISE[50_000:55_000].tobytes()), CommitAudio())
    np.testing.assert_array_equal(sent(made), NOISE[50_000:55_000].astype(np.float32) / 32768)
    assert made.of(SpeechStarted)[-1].audio_start_ms == 5_000 * 1000 // RATE_HZ


def test_engine_that_is_lost_gets_all_the_sound_again() -> None:
    made = rig()
    made.speak(2.0)
    made.do(made.engine.lose)
    made.engine.info = ROWS_MODEL
    made.wait(1.0)
    made.silence(1.0)
    [close] = [r for r in made.asked if isinstance(r, CloseSpan)]
    again = [r for r in made.asked if getattr(r, "sequence_id", 0) == close.sequence_id]
    pieces = [r.data for r in again if isinstance(r, AppendMedia)]
    assert sum(map(len, pieces)) >= 4 * 2 * RATE_HZ
    assert close.content == hashlib.sha256(b"".join(pieces)).hexdigest()


def test_limits_of_sound_are_in_seconds_at_any_rate() -> None:
    made = rig(auto=False)
    made.send(MANUAL)
    for _ in range(100):
        made.send(AppendAudio(data=NOISE.tobytes()))
    in_flight = sum(r.shape[0] for r in made.asked if isinstance(r, AppendMedia))
    assert 30 * RATE_HZ <= in_flight <= 34 * RATE_HZ
    assert made.of(ErrorRaised)[0].code == "buffer_overflow"


def test_rate_whose_windows_are_not_whole_is_refused() -> None:
    intake = Intake(encoder="fake-ears", rate_hz=22_050)
    model = replace(ROWS_MODEL, intakes={"audio": intake})
    with pytest.raises(ValueError, match="at 22050 Hz a window of 32 ms isn't a whole number"):
        Rig(model=model)
