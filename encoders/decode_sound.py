"""Files of sound to mono samples at one rate, and what pictures in motion need of the same library.

Runs in the decoder's child process. All channels count alike in the mean, however many there are.
A sample that is no number, or infinite, is silence.
"""

import io
import itertools
from collections.abc import Iterator
from typing import Any

import av
import numpy as np

from sensorium.encoders.decode_job import SOUND_FORMATS, VIDEO_FORMATS, Job, RawSound
from sensorium.encoders.media import MediaError, MediaFrame, Pts, Samples

_DEMUXERS = "wav,w64,aiff,flac,mp3,ogg,aac,mov,mp4,m4a,3gp,3g2,mj2,matroska,webm"
_RAW_FORMATS = {"pcm16": "s16le", "f32": "f32le", "g711_ulaw": "mulaw", "g711_alaw": "alaw"}
_MAX_BAD_PACKETS = 100
"""Damaged packets that are skipped before the whole file counts as damaged."""
MIN_RATE_HZ = 2_000
MAX_RATE_HZ = 768_000
_FULL_SCALE = {"i2": 1 << 15, "i4": 1 << 31, "i8": 1 << 63}
_MAX_JITTER_S = 0.04
"""How far times of packets may be off: Matroska counts in ms, and writers round."""
_CHUNK_S = 1.0
_MAX_BOXES = 1_000


def frames(file: io.BufferedReader, job: Job) -> Iterator[MediaFrame]:
    """Yield the first audio stream of `file`, contiguous; raises MediaError and MemoryError."""
    assert job.rate_hz is not None
    with opened(file, job) as container:
        if not container.streams.audio:
            raise MediaError("no_sound", "The file has no sound in it.")
        parts = heard(container, container.streams.audio[0], job.rate_hz)
        num_samples = 0
        for frame in counted(parts, job):
            num_samples += len(frame.data)
            yield frame
        if num_samples == 0:
            raise MediaError("no_sound", "There is no sound in the file that can be decoded.")


def opened(file: io.BufferedReader, job: Job) -> Any:
    """Return the container of a file; raises MediaError, and MemoryError."""
    limits = job.limits
    options = {"protocol_whitelist": "", "max_streams": str(limits.max_streams)}
    name = None
    if job.raw is None:
        options["format_whitelist"] = _DEMUXERS
    else:
        name = _RAW_FORMATS[job.raw.format]
        _check_raw(job.raw, file)
        options["sample_rate"] = str(job.raw.rate_hz)
        options["ch_layout"] = f"{job.raw.num_channels}C"
    try:
        container: Any = av.open(file, "r", name, options, metadata_errors="ignore")
    except MemoryError:  # FFmpeg's answer to either
        limit = f"{limits.max_streams} streams, or takes more than {limits.max_memory_mib} MiB"
        raise MediaError("too_large", f"The file has more than {limit} to open.") from None
    except (av.error.FFmpegError, ValueError, OSError):
        raise _unreadable(file, job) from None
    for stream in (*container.streams.audio, *container.streams.video):
        if stream.codec_context is not None:
            stream.thread_type, stream.codec_context.thread_count = "NONE", 1
            # The codec's own check: a stream can change its size in mid-file.
            stream.codec_context.options = {"max_pixels": str(limits.max_video_pixels)}
    return container


def heard(container: Any, stream: Any, rate_hz: int, start_s: float | None = None) -> Iterator[Any]:
    """Yield the stream as mono `Samples` at `rate_hz`.

    With `start_s`, the file's time of the first sample, frames lie where their own times say: a gap
    becomes silence, an overlap is cut. Without, they simply follow each other.
    """
    if stream.codec_context is not None and not stream.codec_context.channels:
        message = "The file's header names no channels of sound, or more than there can be."
        raise MediaError("damaged", message)
    mono = _Mono(rate_hz)
    clock = None if start_s is None else _Clock(start_s)
    for frame in decoded(container, stream):
        _check_rate(frame.sample_rate)
        samples = _mixed(frame)
        if clock is not None:
            gap, samples = clock.place(samples, frame)
            yield from mono.silence(gap, frame.sample_rate)
        yield from mono.push(samples, frame.sample_rate)
    yield from mono.flush()


def counted(parts: Iterator[Samples], job: Job) -> Iterator[MediaFrame]:
    """Make frames of about a second of samples; raises MediaError once there are too many."""
    assert job.rate_hz is not None
    max_sound_s = job.limits.max_sound_s
    start = end = 0
    waiting: list[Samples] = []
    for samples in itertools.chain(parts, [None]):
        if samples is not None:
            waiting.append(samples)
            end += len(samples)
        if end > max_sound_s * job.rate_hz:
            limit = f"{max_sound_s / 60:g} minutes"
            raise MediaError("too_long", f"The file has more than {limit} of sound.")
        if end - start >= (job.rate_hz * _CHUNK_S if samples is not None else 1):
            yield MediaFrame(pts=Pts(start), rate_hz=job.rate_hz, data=np.concatenate(waiting))
            start, waiting = end, []


def decoded(container: Any, stream: Any) -> Iterator[Any]:
    """Yield a stream's decoded frames; what is damaged or cut off is skipped, within reason."""
    yield from decoded_packets(packets(container, stream), stream)


def packets(container: Any, *streams: Any) -> Iterator[Any]:
    """Yield the packets of streams in the file's order, up to its end or where it is cut off."""
    demuxed = container.demux(*streams)
    while True:
        try:
            packet = next(demuxed, None)
        except MemoryError:
            raise
        except (av.error.FFmpegError, ValueError, OSError):
            return
        if packet is None:
            return
        yield packet


def decoded_packets(source: Iterator[Any], stream: Any) -> Iterator[Any]:
    """Yield the frames of packets; raises MediaError if most of them are damaged."""
    if stream.codec_context is None:
        message = f"The file's {stream.type} has a codec that isn't known here."
        raise MediaError("unsupported_format", message)
    num_bad = num_good = 0
    for packet in source:
        try:
            for frame in packet.decode():
                num_good += 1
                yield frame
        except MemoryError:
            raise
        except (av.error.FFmpegError, ValueError, OSError):
            num_bad += 1
            if num_bad > _MAX_BAD_PACKETS + num_good:
                message = f"The file is damaged: its {stream.type} can't be decoded."
                raise MediaError("damaged", message) from None


class _Mono:
    """One stateful resampler from any rate to one; another for the rest where the rate changes."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._source_hz = 0
        self._resampler: Any = None

    def push(self, samples: Samples, source_hz: int) -> Iterator[Samples]:
        if source_hz != self._source_hz:
            yield from self.flush()
            self._source_hz = source_hz
            is_same = source_hz == self._rate_hz
            self._resampler = None if is_same else av.AudioResampler("flt", "mono", self._rate_hz)
        if self._resampler is None:
            yield samples
        elif len(samples):
            frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
            frame.sample_rate = source_hz
            yield from self._resampled(frame)

    def silence(self, num_samples: int, source_hz: int) -> Iterator[Samples]:
        """Push zeros, a second at a time: a hostile gap is counted before it is allocated."""
        most = int(_CHUNK_S * source_hz)
        for start in range(0, num_samples, most):
            yield from self.push(np.zeros(min(most, num_samples - start), np.float32), source_hz)

    def flush(self) -> Iterator[Samples]:
        if self._resampler is not None:
            yield from self._resampled(None)

    def _resampled(self, frame: Any) -> Iterator[Samples]:
        for part in self._resampler.resample(frame):
            # A filter overshoots at steps.
            yield part.to_ndarray()[0].clip(-1.0, 1.0)


class _Clock:
    """Where the next sample belongs, in seconds of the file, against where frames say they are."""

    def __init__(self, start_s: float) -> None:
        self._next_s = start_s

    def place(self, samples: Samples, frame: Any) -> tuple[int, Samples]:
        """Return how many samples of silence go before it, and what of it is not yet past."""
        source_hz = frame.sample_rate
        gap = 0
        if frame.pts is not None and frame.time_base:
            off = float(frame.pts * frame.time_base) - self._next_s
            if abs(off) > _MAX_JITTER_S:
                gap = round(off * source_hz)
        samples = samples[max(0, -gap) :]
        gap = max(0, gap)
        self._next_s += (gap + len(samples)) / source_hz
        return gap, samples


def _mixed(frame: Any) -> Samples:
    """Return the mean of a frame's channels, float32 [n] in [-1, 1]."""
    values = frame.to_ndarray()
    if not frame.format.is_planar:
        values = values.reshape(-1, frame.layout.nb_channels).T  # [channels, n]
    if values.dtype == np.uint8:
        values = (values.astype(np.float32) - 128) / 128
    elif (kind := values.dtype.str[1:]) in _FULL_SCALE:
        values = values.astype(np.float32) / _FULL_SCALE[kind]
    # What isn't a number would poison every later filter.
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).clip(-1.0, 1.0)
    mean: Samples = values[0] if len(values) == 1 else values.mean(axis=0)
    return np.ascontiguousarray(mean, np.float32)


def _check_rate(rate_hz: int) -> None:
    if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        limit = f"{MIN_RATE_HZ} to {MAX_RATE_HZ} Hz are taken"
        raise MediaError("unsupported_format", f"The sound has a rate of {rate_hz} Hz; {limit}.")


def _check_raw(raw: RawSound, file: io.BufferedReader) -> None:
    _check_rate(raw.rate_hz)
    if not 1 <= raw.num_channels <= 64:
        message = f"Raw sound has 1 to 64 channels, not {raw.num_channels}."
        raise MediaError("unsupported_format", message)


def _unreadable(file: io.BufferedReader, job: Job) -> MediaError:
    """Say why a container can't be opened, as far as its first bytes tell."""
    file.seek(0)
    head = file.read(12)
    if head[4:8] == b"ftyp":
        return _incomplete_mp4(file)
    is_wav = head[:4] == b"RIFF" and head[8:] in (b"", b"WAVE")
    if is_wav or head[:4] in (b"fLaC", b"OggS", b"\x1aE\xdf\xa3") or head[:3] == b"ID3":
        return MediaError("damaged", "The file is damaged or cut off: it can't be decoded.")
    formats = VIDEO_FORMATS if job.kind == "video" else SOUND_FORMATS
    return MediaError(
        "unsupported_format", f"The file can't be decoded: it is damaged, or none of {formats}."
    )


def _incomplete_mp4(file: io.BufferedReader) -> MediaError:
    """Walk over the boxes of an mp4: an index (moov) that is missing was cut off."""
    end = file.seek(0, io.SEEK_END)
    place, has_index = 0, False
    for _ in range(_MAX_BOXES):
        if place + 8 > end:
            break
        file.seek(place)
        head = file.read(16)
        size = int.from_bytes(head[:4], "big")
        if size == 1:
            size = int.from_bytes(head[8:16], "big")
        has_index |= head[4:8] == b"moov" and place + size <= end
        if size < 8:
            break
        place += size
    if has_index:
        return MediaError("damaged", "The mp4 is damaged: its streams can't be read.")
    return MediaError("truncated", "The mp4 has no index (moov): it was cut off.")
