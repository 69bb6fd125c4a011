"""One bad clip must not cost the others of its batch: who fails is found by encoding alone."""

import logging
from collections.abc import Callable
from typing import TypeVar

from sensorium.encoders.base import Output

logger = logging.getLogger(__name__)

Member = TypeVar("Member")


def isolate(
    members: list[Member], encode: Callable[[list[Member]], list[Output]]
) -> list[Output | None]:
    """Encode all members at once; if that fails, one by one, so that only the culprits get None."""
    if not members:
        return []
    try:
        return [*encode(members)]
    except Exception:  # an encoder's fault: find the culprits below
        logger.exception("a batch of %d clips failed in the encoder", len(members))
    if len(members) == 1:
        return [None]
    return [_encode_alone(member, encode) for member in members]


def _encode_alone(member: Member, encode: Callable[[list[Member]], list[Output]]) -> Output | None:
    try:
        return encode([member])[0]
    except Exception as error:  # an encoder's fault ends this clip alone
        logger.warning("one clip fails alone and ends: %r", error)
        return None
