"""Long sound in pieces: nothing lost, cut where it is quiet, no more read than needed."""

from collections.abc import AsyncIterator

import numpy as np

from sensorium.encoders.media import Samples
from sensorium.gateway.http.pieces import pieces, quietest

RATE_HZ = 100


async def chunked(sound: Samples, size: int, taken: list[int]) -> AsyncIterator[Samples]:
    for start in range(0, len(sound), size):
        taken.append(start)
        yield sound[start : start + size]


def noise(seconds: float) -> Samples:
    return np.random.default_rng(7).uniform(-1, 1, int(seconds * RATE_HZ)).astype(np.float32)


async def test_pieces_joined_are_the_sound() -> None:
    sound = noise(95)
    found = [piece async for piece in pieces(chunked(sound, 333, []), RATE_HZ, 30)]
    assert np.array_equal(np.concatenate(found), sound)
    assert all(len(piece) <= 30 * RATE_HZ for piece in found)


async def test_short_sound_is_one_piece_and_no_sound_none() -> None:
    sound = noise(5)
    [piece] = [piece async for piece in pieces(chunked(sound, 100, []), RATE_HZ, 30)]
    assert np.array_equal(piece, sound)
    assert [piece async for piece in pieces(chunked(sound[:0], 100, []), RATE_HZ, 30)] == []


async def test_cut_is_in_the_pause() -> None:
    sound = noise(40)
    sound[2500:2560] = 0
    first = await anext(pieces(chunked(sound, 100, []), RATE_HZ, 30))
    assert 2500 <= len(first) <= 2560


async def test_source_is_read_no_further_than_needed() -> None:
    taken: list[int] = []
    await anext(pieces(chunked(noise(100), 100, taken), RATE_HZ, 30))
    assert taken[-1] == 3000


def test_quietest_place_of_a_very_short_sound_is_its_end() -> None:
    assert quietest(noise(0.2), RATE_HZ) == 20
