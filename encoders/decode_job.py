"""What the decoder is asked for, and the limits and errors of that: plain values, JSON between.

Every `MediaError` of the decoder has one of these codes. They are stable; the message names what
was found and which limit or format would be right.

| code | what is wrong |
|---|---|
| `empty_file` | no bytes |
| `unsupported_format` | none of the formats that are taken, by its first bytes or its codec |
| `damaged` | one of them, but it can't be decoded, or its decoder crashed on it |
| `truncated` | it ends too early to be decoded |
| `no_sound`, `no_video` | a container without a stream of that kind, or an empty one |
| `too_long` | more media time than `max_sound_s` or `max_video_s` |
| `too_large` | more pixels, streams, frames or decoded bytes than the limits |
| `too_costly` | decoding took more memory, processor time or time than the limits |
| `decoder_unavailable` | not the file's fault: no decoder process could be started |
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from sensorium.encoders.media import Intake

SOUND_FORMATS = "wav, flac, mp3, ogg, opus, m4a, mp4, webm"
PICTURE_FORMATS = "jpeg, png, webp, tiff, gif, bmp, avif"
VIDEO_FORMATS = "mp4, webm, mkv"
FORMATS = SOUND_FORMATS


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLimits:
    """What one file may cost; each is counted while decoding, whatever headers say.

    `max_cpu_s` and `max_memory_mib` (what the child process may add to its own) are enforced by the
    kernel. `max_wait_s` is how long a reader waits for the child, all waits together: one that
    sleeps is killed then. Pixels are those of one picture or frame before it is sized;
    `max_video_bytes` bounds all sized frames of a video together.
    """

    max_sound_s: float = 14_400.0
    max_video_s: float = 14_400.0
    max_pixels: int = 40_000_000
    max_side_px: int = 32_768
    max_video_pixels: int = 4096 * 2304
    max_video_bytes: int = 24 << 20
    max_streams: int = 64
    max_cpu_s: int = 120
    max_wait_s: float = 180.0
    max_memory_mib: int = 208


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSound:
    """Sound without a header: interleaved samples, little-endian where they have several bytes."""

    format: Literal["pcm16", "f32", "g711_ulaw", "g711_alaw"]
    rate_hz: int
    num_channels: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One file's work: sound at `rate_hz`, or a picture or video as `intake` takes it.

    `rate_hz` of a video is that of its sound, None for none.
    """

    kind: Literal["sound", "picture", "video"]
    limits: DecodeLimits = field(default_factory=DecodeLimits)
    rate_hz: int | None = None
    raw: RawSound | None = None
    intake: Intake | None = None
    detail: str = "auto"

    @property
    def max_output_bytes(self) -> int:
        """Upper bound of all frames together, for a reader that trusts nobody."""
        limits = self.limits
        sound = int((limits.max_sound_s + 1) * (self.rate_hz or 0)) * 4
        match self.kind:
            case "sound":
                return sound
            case "picture":
                return 3 * max_picture_pixels(self.intake)
            case "video":
                return sound + limits.max_video_bytes

    def to_json(self) -> str:
        """Return it as text for the decoder's process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Return the job that `to_json` made this of."""
        fields = json.loads(text)
        intake, raw = fields["intake"], fields["raw"]
        if intake:
            intake = Intake(**(intake | {"shape": tuple(intake["shape"])}))
        limits = DecodeLimits(**fields["limits"])
        raw = RawSound(**raw) if raw else None
        return cls(**(fields | {"limits": limits, "intake": intake, "raw": raw}))


def max_picture_pixels(intake: Intake | None) -> int:
    """Return how many pixels a sized picture can have at most."""
    assert intake is not None
    return intake.max_cells * intake.cell_px**2
