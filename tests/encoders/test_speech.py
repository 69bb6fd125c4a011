"""The real Whisper tiny.en on short real clips."""

import itertools

import numpy as np
import pytest
from clips import JFK, RATE_HZ, frame, load_clip, plain

from sensorium.core.sources import resolve
from sensorium.encoders.base import ClipHints, Output
from sensorium.encoders.media import MediaError, MediaFrame, Pts, Samples
from sensorium.encoders.speech import SpeechEncoder
from sensorium.encoders.whisper import Whisper


@pytest.fixture(scope="module")
def encoder() -> SpeechEncoder:
    return SpeechEncoder(resolve("whisper-tiny.en", None), threads=2)


def transcribe(
    encoder: SpeechEncoder, clips: list[Samples], piece: int, hints: ClipHints | None = None
) -> list[list[Output]]:
    """Push clips of any lengths in step, pieces of `piece` samples, then flush them together."""
    states = [encoder.open(hints or ClipHints()) for _ in clips]
    outputs: list[list[Output]] = [[] for _ in clips]
    for start in range(0, max(map(len, clips)), piece):
        rows = [i for i, clip in enumerate(clips) if start < len(clip)]
        frames: list[tuple[MediaFrame, ...]] = [
            (frame(clips[i][start : start + piece], start),) for i in rows
        ]
        for i, output in zip(rows, encoder.push(frames, [states[i] for i in rows]), strict=True):
            outputs[i].append(output)
    for of_clip, output in zip(outputs, encoder.flush(states), strict=True):
        of_clip.append(output)
    return outputs


def text_of(outputs: list[Output]) -> str:
    return "".join(output.text for output in outputs)


def test_words_settle_while_they_are_spoken_with_their_times(encoder: SpeechEncoder) -> None:
    samples = load_clip("jfk_16k.wav")
    [outputs] = transcribe(encoder, [samples], RATE_HZ // 10)
    assert plain(text_of(outputs)) == JFK
    words = [word for output in outputs for word in output.words]
    assert "".join(word.text for word in words) == text_of(outputs)
    assert all(a.start_s <= b.start_s for a, b in itertools.pairwise(words))
    assert words[-1].end_s <= len(samples) / RATE_HZ + 0.1
    assert outputs[-1].words[0].start_s > len(samples) / RATE_HZ - 4.0
    assert any(output.pending for output in outputs)
    assert outputs[-1].pending == ""
    assert (outputs[-1].language, outputs[-1].problem) == ("en", None)


def test_packet_sizes_and_company_change_nothing(encoder: SpeechEncoder) -> None:
    clips = [load_clip("vctk_p225_003.wav"), load_clip("jfk_16k.wav")[: 5 * RATE_HZ]]
    together = transcribe(encoder, clips, 320)
    for clip, outputs in zip(clips, together, strict=True):
        [alone] = transcribe(encoder, [clip], 8_000)
        assert [o.text for o in alone if o.text] == [o.text for o in outputs if o.text]


def test_a_clip_is_ready_at_the_next_full_second(encoder: SpeechEncoder) -> None:
    state = encoder.open(ClipHints())
    assert not encoder.ready(state, RATE_HZ - 1)
    assert encoder.ready(state, RATE_HZ)
    encoder.push([(frame(np.zeros(RATE_HZ + 100, np.float32)),)], [state])
    assert not encoder.ready(state, RATE_HZ - 101)
    assert encoder.ready(state, RATE_HZ - 100)


def test_a_file_is_heard_at_the_end_and_once(encoder: SpeechEncoder) -> None:
    [outputs] = transcribe(encoder, [load_clip("vctk_p225_003.wav")], 16_000, ClipHints(live=False))
    assert all(output == outputs[0] for output in outputs[:-1])
    assert "snack for her brother bob" in plain(text_of(outputs))


def test_a_sound_longer_than_any_window_loses_nothing(encoder: SpeechEncoder) -> None:
    jfk = load_clip("jfk_16k.wav")
    [outputs] = transcribe(encoder, [np.tile(jfk, 4)], 44 * RATE_HZ, ClipHints(live=False))
    assert plain(text_of(outputs)).count("country can do for you") == 4
    assert outputs[-1].words[-1].end_s > 40.0


def test_a_file_that_repeats_itself_keeps_its_words(encoder: SpeechEncoder) -> None:
    jfk = load_clip("jfk_16k.wav")
    [outputs] = transcribe(encoder, [np.tile(jfk, 6)], 1 << 16, ClipHints(live=False))
    words = [word for output in outputs for word in output.words]
    gaps = [b.start_s - a.end_s for a, b in itertools.pairwise(words)]
    assert max(gaps) < 3.0
    assert 120 <= len(words) <= 145
    assert words[-1].end_s > 62.0


def test_speech_after_a_pause_is_heard_in_a_file(encoder: SpeechEncoder) -> None:
    clip = load_clip("vctk_p225_003.wav")
    sound = np.concatenate([clip, np.zeros(30 * RATE_HZ, np.float32), clip])
    [outputs] = transcribe(encoder, [sound], 1 << 16, ClipHints(live=False))
    assert plain(text_of(outputs)).count("for her brother bob") == 2


def test_telephone_speech_is_understood(encoder: SpeechEncoder) -> None:
    clip = load_clip("tel_prompt_cannot-complete-as-dialed_8k.wav")
    [outputs] = transcribe(encoder, [clip], 320)
    assert plain(text_of(outputs)) == "your call cannot be completed as dialed"


def test_another_language_gets_a_sentence_for_the_user_and_no_words(
    encoder: SpeechEncoder,
) -> None:
    [outputs] = transcribe(encoder, [load_clip("es_sentence_16k.wav")], 16_000)
    assert text_of(outputs) == ""
    assert outputs[-1].problem is not None
    assert "does not sound like English" in outputs[-1].problem
    assert "whisper-base" in outputs[-1].problem


def test_a_language_hint_that_the_model_does_not_know_is_a_problem(
    encoder: SpeechEncoder,
) -> None:
    hints = ClipHints(language="es")
    [outputs] = transcribe(encoder, [load_clip("vctk_p225_003.wav")], 96_000, hints)
    assert text_of(outputs) == ""
    assert "'es'" in (outputs[-1].problem or "")


def test_silence_and_broken_samples_have_no_words(encoder: SpeechEncoder) -> None:
    silence = load_clip("nonspeech_silence_5s_8k.wav")
    broken = np.full(2 * RATE_HZ, np.nan, np.float32)
    for outputs in transcribe(encoder, [silence, broken], 16_000):
        assert text_of(outputs) == ""
        assert outputs[-1].problem is None


def test_a_prepared_end_costs_the_flush_nothing_and_changes_no_word(
    encoder: SpeechEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = load_clip("vctk_p225_003.wav")
    silence = np.zeros(round(0.99 * RATE_HZ), np.float32)  # past the next grid point
    clip = encoder.open(ClipHints())
    outputs = encoder.push([(frame(samples),)], [clip])
    encoder.anticipate([clip])
    with monkeypatch.context() as patch:
        patch.delattr(Whisper, "encode")  # nobody is asked again
        outputs += encoder.push([(frame(silence, len(samples)),)], [clip])
        outputs += encoder.flush([clip])
    [expected] = transcribe(encoder, [samples], len(samples))
    assert text_of(outputs) == text_of(expected)


def test_speech_after_a_prepared_end_is_heard(encoder: SpeechEncoder) -> None:
    samples = load_clip("vctk_p225_003.wav")
    clip = encoder.open(ClipHints())
    cut = 4 * RATE_HZ
    outputs = encoder.push([(frame(samples[:cut]),)], [clip])
    encoder.anticipate([clip])
    outputs += encoder.push([(frame(samples[cut:], cut),)], [clip])
    outputs += encoder.flush([clip])
    assert plain(text_of(outputs)).endswith("brother bob")


def test_a_clip_without_sound_is_empty(encoder: SpeechEncoder) -> None:
    [output] = encoder.flush([encoder.open(ClipHints())])
    assert (output.text, output.words, output.problem) == ("", (), None)


def test_a_frame_of_another_rate_is_refused(encoder: SpeechEncoder) -> None:
    wrong = MediaFrame(pts=Pts(0), rate_hz=8000, data=np.zeros(160, np.float32))
    with pytest.raises(MediaError, match="16000 Hz, not 8000 Hz"):
        encoder.push([(wrong,)], [encoder.open(ClipHints())])
