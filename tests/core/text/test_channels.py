"""Answers as they stream: one channel, whole characters, nothing lost."""

import pytest

from sensorium.core.sources import resolve
from sensorium.core.text.channels import ChannelDelta, TextStream
from sensorium.core.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Return the default decoder's tokenizer."""
    return Tokenizer(resolve("smollm2-135m-instruct"))


def test_answer_goes_to_the_user_piece_by_piece(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer)
    ids = tokenizer.encode("Paris 👍🏽!")
    deltas = [delta for token_id in ids for delta in stream.push([token_id])] + stream.finish()
    assert {delta.channel for delta in deltas} == {"user"}
    assert "".join(delta.text for delta in deltas) == "Paris 👍🏽!"
    assert all(delta.text for delta in deltas)


def test_held_emoji_comes_at_the_end(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer)
    assert stream.push(tokenizer.encode("🚀")) == []
    assert stream.finish() == [ChannelDelta(channel="user", text="🚀")]
    assert stream.finish() == []
