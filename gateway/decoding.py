"""Files of items → media, in the decoding processes; what can't be decoded becomes a refusal."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

import numpy as np

from sensorium.encoders.decode import DecodeLimits, decode_image, decode_video
from sensorium.encoders.media import Intake, MediaError, MediaFrame, Pts, joined
from sensorium.gateway.ingest import Timeline
from sensorium.gateway.media import FileDecoded, FileRefused, FileToDecode, Medium, medium

_LIMITS_OF_FRAME = DecodeLimits(max_pixels=4096 * 2304, max_cpu_s=5, max_wait_s=10.0)
"""A camera's frames keep the sound of their turn waiting."""


class FileDecoding:
    """The files of one session that are being decoded, as tasks of `group`.

    `on_answer` is called on the event loop; `on_failure` gets what should not have happened.
    """

    group: asyncio.TaskGroup

    def __init__(
        self,
        intakes: Mapping[str, Intake],
        on_answer: Callable[[FileDecoded | FileRefused], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._intakes = intakes
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, file: FileToDecode) -> None:
        """Begin to decode a file."""
        task = self.group.create_task(self._decode(file))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Give up what is under way; its processes are killed."""
        for task in self._tasks:
            task.cancel()

    async def _decode(self, file: FileToDecode) -> None:
        try:
            answer = await decode_file(file, self._intakes)
        except Exception as error:  # whatever goes wrong ends this session alone
            self._on_failure(error)
            return
        self._on_answer(answer)


async def decode_file(
    file: FileToDecode, intakes: Mapping[str, Intake]
) -> FileDecoded | FileRefused:
    """Decode a picture, bare sound, or a video with its sound where the model hears some.

    Never raises for what the bytes are.
    """
    try:
        match file.modality:
            case "image":
                as_video = file.is_frame and "video" in intakes
                media = await _picture(file, intakes["video" if as_video else "image"])
            case "video":
                media = await _video(file, intakes["video"], intakes.get("audio"))
            case "audio":
                media = (await asyncio.to_thread(_sound, file, intakes["audio"]),)
    except MediaError as error:
        return FileRefused(number=file.number, code=error.code, message=str(error))
    return FileDecoded(number=file.number, media=media)


async def _picture(file: FileToDecode, intake: Intake) -> tuple[Medium, ...]:
    limits = _LIMITS_OF_FRAME if file.is_frame else None
    frame = await decode_image(file.data, intake, detail=file.detail, limits=limits)
    return (await asyncio.to_thread(medium, "image", [frame], intake),)


async def _video(file: FileToDecode, video: Intake, audio: Intake | None) -> tuple[Medium, ...]:
    frames: dict[str, list[MediaFrame]] = {"video": [], "audio": []}
    rate_hz = None if audio is None else audio.rate_hz
    num_bytes = 0
    async with aclosing(decode_video(file.data, video, sound_rate_hz=rate_hz)) as pieces:
        async for modality, frame in pieces:
            num_bytes += frame.data.nbytes
            _check_size(num_bytes, file)
            frames[modality].append(frame)
    media = [await asyncio.to_thread(medium, "video", frames["video"], video)]
    if audio is not None and frames["audio"]:
        sound = await asyncio.to_thread(joined, frames["audio"])
        media.append(await asyncio.to_thread(medium, "audio", sound, audio))
    return tuple(media)


def _sound(file: FileToDecode, intake: Intake) -> Medium:
    """Read bare sound as a session's stream is read; in a thread, but for no stranger's code."""
    num_samples = len(file.data) // (2 if file.sound.encoding == "pcm16" else 1)
    _check_size(4 * num_samples * intake.rate_hz // file.sound.rate_hz, file)
    timeline = Timeline(file.sound, intake.rate_hz)
    samples = np.concatenate([timeline.append(file.data), timeline.flush()])
    if not len(samples):
        raise MediaError("no_sound", "There is no sound in it, not even one sample.")
    return medium("audio", [MediaFrame(pts=Pts(0), rate_hz=intake.rate_hz, data=samples)], intake)


def _check_size(num_bytes: int, file: FileToDecode) -> None:
    if num_bytes > file.max_bytes:
        raise MediaError(
            "too_large",
            f"Its frames and sound take more than {file.max_bytes >> 20} MiB when they are "
            "decoded, which is all that a conversation keeps; send a shorter one.",
        )
