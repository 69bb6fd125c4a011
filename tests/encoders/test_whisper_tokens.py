"""Token ids taken apart into words, with the real vocabulary."""

import pytest

from sensorium.core.sources import resolve
from sensorium.encoders.whisper_tokens import WhisperVocabulary, compression_ratio


@pytest.fixture(scope="module")
def vocabulary() -> WhisperVocabulary:
    return WhisperVocabulary(resolve("whisper-tiny.en", None))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" Ask not, my friend.", [" Ask", " not,", " my", " friend."]),
        (" It costs $20, doesn't it?", [" It", " costs", " $20,", " doesn't", " it?"]),
        (" a light-roast coffee", [" a", " light-roast", " coffee"]),
        (' He said "go" twice.', [" He", " said", ' "go"', " twice."]),
        (" naïve café 東京", [" naïve", " café", " 東京"]),
        ("", []),
    ],
)
def test_words_keep_their_space_and_punctuation(
    vocabulary: WhisperVocabulary, text: str, words: list[str]
) -> None:
    ids = vocabulary.encode(text)
    found = vocabulary.words(ids)
    assert [word.text for word in found] == words
    assert [i for word in found for i in word.ids] == ids


def test_languages_without_spaces_split_at_characters(vocabulary: WhisperVocabulary) -> None:
    found = vocabulary.words(vocabulary.encode("東京。"), "ja")
    assert [word.text for word in found] == ["東", "京。"]


def test_control_tokens_are_no_words(vocabulary: WhisperVocabulary) -> None:
    ids = [vocabulary.first_timestamp, *vocabulary.encode(" yes"), vocabulary.end_of_text]
    assert vocabulary.text(ids) == " yes"
    assert [word.text for word in vocabulary.words(ids)] == [" yes"]


def test_half_a_character_is_dropped(vocabulary: WhisperVocabulary) -> None:
    ids = vocabulary.encode(" 👍")
    assert vocabulary.words(ids[:-1]) == []


def test_comparison_ignores_case_and_punctuation(vocabulary: WhisperVocabulary) -> None:
    [word] = vocabulary.words(vocabulary.encode(" Don't,"))
    assert word.key == "dont"


def test_loops_compress() -> None:
    assert compression_ratio(" thank you very much and" * 20) > 2.4
    assert compression_ratio(" Ask not what your country can do for you.") < 2.4
