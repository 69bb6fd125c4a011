"""What items become in the prompt, and which media they hold."""

import pytest
from conversation_rig import clip, conversation, item
from tiny_text import tiny_prompt

from sensorium.gateway.conversation import Unit
from sensorium.gateway.items import (
    AudioPart,
    ItemReference,
    Part,
    PicturePart,
)
from sensorium.gateway.media import Medium

PROMPT = tiny_prompt()
CAT, SOUND = PicturePart(), AudioPart()


def spelled(unit: Unit | None) -> str | None:
    if unit is None:
        return None
    return "".join(
        f"[{piece.content}]" if isinstance(piece, Medium) else PROMPT.tokenizer.spell(piece)
        for piece in unit.pieces
    )


def body(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n"


@pytest.mark.parametrize(
    ("parts", "rows", "expected"),
    [
        (("one", CAT, "two", CAT), True, "one[1]two[3]"),
        (("one", CAT, "two", CAT), False, "one\n[1]\ntwo\n[3]"),
        ((CAT, CAT), True, "[0][1]"),
        ((CAT, CAT), False, "[0]\n[1]"),
        (("one", "two", CAT), True, "one\ntwo[2]"),
        (("one", " ", CAT), False, "one\n[2]"),
        ((AudioPart(transcript="said"), CAT), True, "said[1]"),
    ],
)
def test_words_are_parted_by_lines_and_rows_by_nothing(
    parts: tuple[Part | str, ...], rows: bool, expected: str
) -> None:
    made = conversation(item("a", *parts))
    for place, part in enumerate(parts):
        if part is CAT:
            made.keep("a", place, (clip(str(place), rows=rows),))
    assert spelled(made.unit("a")) == body(expected)


def test_words_and_rows_of_one_part_stand_in_their_order() -> None:
    made = conversation(item("a", "look", CAT))
    made.keep("a", 1, (clip("film"), clip("heard", rows=False), clip("seen", rows=False)))
    assert spelled(made.unit("a")) == body("look[film][heard]\n[seen]")


def test_item_is_not_in_the_prompt_before_all_its_parts_are_there() -> None:
    made = conversation(item("a", "look", CAT, CAT), item("b", "hi"))
    made.expect("a", [1, 2])
    assert made.expecting == {"a"}
    assert [u.key for u in made.units("S")] == [("instructions", "S"), ("item", "b")]
    made.keep("a", 2, (clip("2"),))
    assert made.unit("a") is None
    made.keep("a", 1, (clip("1"),))
    assert made.expecting == set()
    assert [u.key for u in made.units("S")][1:] == [("item", "a"), ("item", "b")]


def test_item_of_which_nothing_is_expected_is_complete() -> None:
    made = conversation(item("a", "look"))
    made.expect("a", [])
    assert spelled(made.unit("a")) == body("look")


def test_removed_item_leaves_nothing_behind() -> None:
    made = conversation(item("a", CAT, CAT))
    made.expect("a", [0, 1])
    made.keep("a", 0, (clip("0"),))
    made.remove("a")
    made.keep("a", 1, (clip("1"),))
    assert (made.expecting, made.media_bytes, made.media_of("a")) == (set(), 0, [])
    made.insert(item("a", "anew"), None)
    assert spelled(made.unit("a")) == body("anew")


def test_media_are_counted_and_found_by_age() -> None:
    made = conversation(*(item(name, CAT) for name in "abc"), item("d", "text"))
    for name in "cba":
        made.keep(name, 0, (clip(name, num_bytes=100), clip(name, num_bytes=11)))
    assert made.media_bytes == 333
    assert made.oldest_with_media(frozenset()) == "a"
    assert made.oldest_with_media(frozenset("ab")) == "c"
    assert made.oldest_with_media(frozenset("abc")) is None


def test_media_of_an_item_are_in_the_order_of_its_parts() -> None:
    made = conversation(item("a", CAT, "text", CAT))
    made.keep("a", 2, (clip("2"), clip("3")))
    made.keep("a", 0, (clip("0"),))
    assert [each.content for each in made.media_of("a")] == ["0", "2", "3"]
    assert made.item_with(made.media_of("a")[1]) == "a"
    assert made.item_with(clip("2")) is None


def test_length_of_a_unit_follows_what_is_known_of_its_media() -> None:
    made = conversation(item("a", "four", CAT))
    picture = clip("1", num_positions=96)
    made.keep("a", 1, (picture,))
    unit = made.unit("a")
    assert unit is not None
    frame = len(PROMPT.tokenizer.encode_markup(body("")))
    assert unit.num_positions == frame + 4 + 96
    picture.num_positions = 7
    assert unit.num_positions == frame + 4 + 7
    assert unit.media == [picture]


def test_key_changes_with_the_words_of_sound_beside_a_picture() -> None:
    made = conversation(item("a", CAT, SOUND))
    made.keep("a", 0, (clip("cat", rows=False),))
    keys = [made.units("")[1].key]
    for words in ("", "one", "two"):
        made.set_transcript("a", words)
        keys.append(made.units("")[1].key)
    assert len({*keys, ("item", "a")}) == 5
    assert spelled(made.unit("a")) == body("[cat]\ntwo")


def test_sound_alone_has_the_key_of_the_turn_that_was_heard() -> None:
    made = conversation(item("a", SOUND), item("b", SOUND))
    made.set_transcript("a", "hello")
    made.keep("b", 0, (clip("rows"),))
    assert [u.key for u in made.units("")[1:]] == [("item", "a"), ("item", "b")]


def test_transcript_is_told_once_in_an_item_of_several_sounds() -> None:
    made = conversation(item("a", SOUND, "then", SOUND))
    made.set_transcript("a", "hello")
    assert spelled(made.unit("a")) == body("hello\nthen")


def test_reference_brings_its_media_and_a_name_alone_does_not() -> None:
    made = conversation(item("a", "old", CAT))
    made.keep("a", 1, (clip("cat"),))
    given = (ItemReference(item_id="a"), item("a", "new", "words"))
    assert [spelled(unit) for unit in made.units_of("S", given)[1:]] == [
        body("old[cat]"),
        body("new\nwords"),
    ]
