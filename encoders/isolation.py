"""Calls of an encoder for many clips, of which a bad one must not cost the others.

If a batch fails, who is to blame is found by encoding each clip alone.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from sensorium.encoders.base import Output
from sensorium.encoders.clip import Clip
from sensorium.encoders.media import MediaFrame

logger = logging.getLogger(__name__)

Member = TypeVar("Member")


def push(pushed: list[tuple[Clip[Any], tuple[MediaFrame, ...]]]) -> list[Output | None]:
    """Encode more media of clips of one encoder; None for those that it fails on."""

    def encode(part: list[tuple[Clip[Any], tuple[MediaFrame, ...]]]) -> list[Output]:
        encoder = part[0][0].encoder
        return encoder.push([frames for _, frames in part], [clip.state for clip, _ in part])

    return _isolate(pushed, encode)


def flush(clips: list[Clip[Any]]) -> list[Output | None]:
    """End clips of one encoder; None for those that it fails on."""

    def encode(part: list[Clip[Any]]) -> list[Output]:
        return part[0].encoder.flush([clip.state for clip in part])

    return _isolate(clips, encode)


def anticipate(clips: list[Clip[Any]]) -> None:
    """Let an encoder prepare ends; what goes wrong goes wrong again in the flush, and is told."""
    if not clips:
        return
    try:
        clips[0].encoder.anticipate([clip.state for clip in clips])
    except Exception:  # nobody waits for this; the flush will tell
        logger.exception("the encoder can't prepare the end of %d clips", len(clips))


def _isolate(
    members: list[Member], encode: Callable[[list[Member]], list[Output]]
) -> list[Output | None]:
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
