"""A video file to its chosen frames, upright and sized, and its sound, on one clock.

Runs in the decoder's child process. A first pass reads the times of all frames without decoding
them, and the first frame; a second decodes only the groups of pictures that chosen frames are in.
Frames that aren't square in their pixels stay as they are stored.
"""

import bisect
import heapq
import io
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from PIL import Image

from sensorium.encoders import decode_picture, decode_sound, frame_choice, sizing
from sensorium.encoders.decode_job import VIDEO_FORMATS, Job
from sensorium.encoders.media import MediaError, MediaFrame, Pixels, picture

_MAX_FRAMES = 1 << 20
"""Frames whose times are kept: nearly five hours at 60 a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    """What the first pass found. Times are seconds of the file's own clock, not yet from its start.

    `key_frames` are the places, in the order of decoding, at which decoding can begin; `times_s`
    are in that order too. `start_s` is the time of the first frame or sound.
    """

    times_s: "array[float]"
    key_frames: "array[int]"
    start_s: float
    size: tuple[int, int]
    orientation: int


def frames(opened: Callable[[], io.BufferedReader], job: Job) -> Iterator[tuple[str, MediaFrame]]:
    """Yield ("video", a frame) and ("audio", some sound), by time; raises MediaError.

    The file is opened once for the pictures and once for the sound: a file may have all of one
    before the other, and nothing is to be kept meanwhile.
    """
    with decode_sound.opened(opened(), job) as container:
        survey = _surveyed(container, job)
    tracks = [_shown(opened(), survey, job)]
    if job.rate_hz is not None:
        tracks.append(_heard(opened(), survey, job))
    yield from heapq.merge(*tracks, key=lambda track: track[1].start_s)


def _shown(file: io.BufferedReader, survey: _Survey, job: Job) -> Iterator[tuple[str, MediaFrame]]:
    intake = job.intake
    assert intake is not None
    rows, columns = sizing.grid(*survey.size, cell_px=intake.cell_px, max_cells=intake.max_cells)
    size = (rows * intake.cell_px, columns * intake.cell_px)
    wanted_s, groups = _chosen(survey, size, job)
    num_shown = 0
    with decode_sound.opened(file, job) as container:
        stream = _video_stream(container)
        packets = _of_groups(container, stream, groups)
        for frame in decode_sound.decoded_packets(packets, stream):
            time_s = _time_s(frame)
            if time_s is None or time_s < wanted_s[num_shown]:
                continue
            # One that can't be decoded is stood in for by the next that can.
            num_shown = bisect.bisect_right(wanted_s, time_s)
            pixels = _pixels(frame, size, survey.orientation, job)
            yield "video", picture(pixels, time_s - survey.start_s)
            if num_shown == len(wanted_s):
                return
    if num_shown == 0:
        raise MediaError("damaged", "The file is damaged: no frame of its video can be decoded.")


def _heard(file: io.BufferedReader, survey: _Survey, job: Job) -> Iterator[tuple[str, MediaFrame]]:
    assert job.rate_hz is not None
    with decode_sound.opened(file, job) as container:
        if not container.streams.audio:
            return
        stream = container.streams.audio[0]
        parts = decode_sound.heard(container, stream, job.rate_hz, survey.start_s)
        for frame in decode_sound.counted(parts, job):
            yield "audio", frame


def _surveyed(container: Any, job: Job) -> _Survey:
    video = _video_stream(container)
    if video.codec_context is not None:
        _check_size(video.codec_context, job)
    audio = container.streams.audio[:1] if job.rate_hz is not None else ()
    first: dict[int, Any] = {}
    times_s, key_frames = array("d"), array("q")
    for packet in decode_sound.packets(container, video, *audio):
        index = packet.stream.index  # an end has no `stream_index`
        if index not in first:
            for frame in decode_sound.decoded_packets(iter([packet]), packet.stream):
                first.setdefault(index, frame)
        if index != video.index or packet.size == 0:
            continue
        if packet.is_keyframe or not key_frames:
            key_frames.append(len(times_s))
        time_s = _time_s(packet)
        times_s.append(float("nan") if time_s is None or packet.is_discard else time_s)
        if len(times_s) > _MAX_FRAMES:
            raise MediaError("too_large", f"The video has more than {_MAX_FRAMES} frames.")
    frame = first.get(video.index)
    if frame is None:
        message = "The file is damaged or cut off: no frame of its video can be decoded."
        raise MediaError("damaged" if len(times_s) else "no_video", message)
    _check_size(frame, job)
    starts = [time_s for time_s in map(_time_s, first.values()) if time_s is not None]
    orientation = _orientation(frame)
    size = (frame.height, frame.width)
    return _Survey(
        times_s=times_s,
        key_frames=key_frames,
        start_s=min(starts, default=0.0),
        size=size[::-1] if orientation in decode_picture.TURNED else size,
        orientation=orientation,
    )


def _chosen(survey: _Survey, size: tuple[int, int], job: Job) -> tuple[list[float], set[int]]:
    """Return the times of the frames to take, rising, and the groups of pictures they are in."""
    intake = job.intake
    assert intake is not None
    times_s = np.asarray(survey.times_s)
    order = np.argsort(times_s, kind="stable")
    order = order[: np.count_nonzero(~np.isnan(times_s))]  # NaN sorts to the end
    if not len(order):
        raise MediaError("damaged", "The file is damaged: no frame of its video has a time.")
    shown_s = times_s[order]
    if not shown_s[-1] - shown_s[0] <= job.limits.max_video_s:
        limit = f"{job.limits.max_video_s / 60:g} minutes"
        raise MediaError("too_long", f"The file has more than {limit} of video.")
    most = job.limits.max_video_bytes // (3 * size[0] * size[1])
    if most < 1:
        message = f"One frame has more than {job.limits.max_video_bytes} bytes when sized."
        raise MediaError("too_large", message)
    chosen = frame_choice.choose(
        shown_s.tolist(),
        fps=intake.fps,
        max_frames=min(intake.max_frames, most),
        frames_per_group=intake.frames_per_group,
    )
    groups = set()
    for place in order[chosen]:
        group = bisect.bisect_right(survey.key_frames, place) - 1
        groups.add(group)
        if times_s[place] < times_s[survey.key_frames[group]]:
            groups.add(group - 1)  # shown before its key frame, it may need the group before
    return [float(time_s) for time_s in shown_s[chosen]], groups


def _of_groups(container: Any, stream: Any, groups: set[int]) -> Iterator[Any]:
    """Yield the packets of some groups of pictures, and an empty one where others are left out."""
    group = fed = -1
    for packet in decode_sound.packets(container, stream):
        if packet.size and (packet.is_keyframe or group < 0):
            group += 1
        if packet.size and group not in groups:
            continue
        if group > fed + 1 and fed >= 0:
            # The decoder gives what it holds, and forgets it, or it would refer to the wrong frame.
            end = av.Packet()
            end.stream, end.time_base = stream, stream.time_base
            yield end
            stream.codec_context.flush_buffers()
        fed = group
        yield packet


def _pixels(frame: Any, size: tuple[int, int], orientation: int, job: Job) -> Pixels:
    _check_size(frame, job)
    image = Image.fromarray(frame.to_ndarray(format="rgb24"))
    return decode_picture.sized(image, size, orientation)


def _check_size(sized: Any, job: Job) -> None:
    num_pixels, most = sized.width * sized.height, job.limits.max_video_pixels
    if num_pixels > most:
        found = f"{sized.width} x {sized.height} pixels ({num_pixels / 1e6:.3g} million)"
        limit = f"a frame may have {most / 1e6:.3g} million"
        raise MediaError("too_large", f"The video has frames of {found}; {limit}.")


def _time_s(timed: Any) -> float | None:
    """Return the time of a frame or packet, None if it has none."""
    pts = timed.pts if timed.pts is not None else timed.dts
    return None if pts is None or not timed.time_base else float(pts * timed.time_base)


def _video_stream(container: Any) -> Any:
    """Return the stream that players would choose; raises MediaError without one."""
    stream = container.streams.best("video")
    if stream is None or stream.disposition & Disposition.attached_pic:  # a cover
        raise MediaError("no_video", f"The file has no video in it; {VIDEO_FORMATS} are taken.")
    return stream


def _orientation(frame: Any) -> int:
    """Return the EXIF orientation that says what the frame's display matrix does."""
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None:
        return 1
    matrix = np.frombuffer(bytes(data), np.int32)
    if len(matrix) != 9:
        return 1
    # A stored (x, y) is shown at (a x + c y, b x + d y).
    a, b, c, d = (int(matrix[index]) for index in (0, 1, 3, 4))
    if abs(b) > abs(a):
        return {(1, 1): 5, (1, -1): 6, (-1, -1): 7, (-1, 1): 8}[_sign(b), _sign(c)]
    return {(1, 1): 1, (-1, 1): 2, (-1, -1): 3, (1, -1): 4}[_sign(a), _sign(d)]


def _sign(value: int) -> int:
    return -1 if value < 0 else 1
