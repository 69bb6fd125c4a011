"""An interleaved turn over a tiny Muse: what the decoder gets is that of the same items offline."""

from dataclasses import dataclass, field

import numpy as np
import torch
from muse_checkpoint import cached_tiny_muse
from muse_rig import RecordingRunner, load_muse
from torch import Tensor
from vision_rig import noise

from sensorium.core.api import (
    AppendMedia,
    AppendTokens,
    CloseSpan,
    EngineEvent,
    EngineLoad,
    EngineRequest,
    Generate,
    Generated,
    ModelInfo,
    OpenSequence,
    OpenSpan,
    SamplingParams,
    SequenceId,
    SpanId,
)
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.encoding import marks_around, open_encoders
from sensorium.core.engine import Engine
from sensorium.core.kv_cache import KVCache
from sensorium.core.loop import EngineLoop, LoadedModels
from sensorium.core.text.prompt import load_prompt
from sensorium.core.text.tokenizer import Tokenizer
from sensorium.encoders.media import MediaFrame, Pts, picture
from sensorium.gateway.client_events import (
    AppendAudio,
    AppendPicture,
    CommitAudio,
    CreateResponse,
    UpdateSession,
)
from sensorium.gateway.media import FileDecoded, Medium, medium
from sensorium.gateway.server_events import ResponseDone, ServerEvent
from sensorium.gateway.session import Session
from sensorium.gateway.settings import SessionSettings

CPU = torch.device("cpu")
RATE_HZ = 24_000
SOUND = (np.random.default_rng(0).uniform(-0.5, 0.5, 3 * RATE_HZ) * 32767).astype("<i2")
FRAMES = {0.0: noise(1, 2, 0), 0.5: noise(2, 2, 1), 1.0: noise(2, 2, 2), 2.24: noise(2, 1, 3)}


@dataclass
class Served:
    """A loop over the tiny Muse, driven by hand; `embeds` is what its decoder was given."""

    events: list[EngineEvent | EngineLoad] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Load."""
        folder = cached_tiny_muse()
        decoder = load_muse(folder)
        cache = KVCache(
            decoder.shape, num_blocks=200, block_size=4, dtype=torch.float32, device=CPU
        )
        self._runner = RecordingRunner(decoder, cache)
        config = EngineConfig(block_size=4, max_step_tokens=256, window_slack=0)
        encoders = open_encoders(ModelsConfig(), folder, torch.float32, 1)
        self.intakes = {modality: encoder.intake for modality, encoder in encoders.items()}
        models = LoadedModels(
            engine=Engine(self._runner, config),
            encoders=encoders,
            encode=Tokenizer(folder).encode,
            info=ModelInfo(
                name="tiny", max_positions=512, dtype="float32", speech_languages=(),
                intakes=self.intakes, capacity=1,
            ),
            marks=marks_around(folder, encoders),
        )  # fmt: skip
        self.info = models.info
        self._loop = EngineLoop(models, publish=self.events.extend, clock=lambda: 0.0)

    def submit(self, *requests: EngineRequest) -> list[EngineEvent]:
        """Hand over requests and let everything come to rest; returns what was told."""
        start = len(self.events)
        for request in requests:
            self._loop.receive(request)
        while self._loop.turn() or self._loop.pool.run_once():
            pass
        return [e for e in self.events[start:] if not isinstance(e, EngineLoad)]

    def embeds(self) -> Tensor:
        """Return what stood at each position."""
        return self._runner.capture.tensors()["hidden.embeds"]

    def written(self) -> list[int]:
        """Return what was generated."""
        return [i for e in self.events if isinstance(e, Generated) for i in e.token_ids]


def spoken() -> tuple[Served, list[ServerEvent], list[EngineRequest]]:
    """Speak and show the scene in packets of 20 ms, and have it answered."""
    served, said, asked = Served(), list[ServerEvent](), list[EngineRequest]()
    ids = iter(range(1, 9))
    session = Session(
        model=served.info,
        prompt=load_prompt(cached_tiny_muse()),
        settings=SessionSettings(default_instructions="S", max_output_tokens=6),
        new_sequence_id=lambda: SequenceId(next(ids)),
        now=0.0,
        clock_unix=0.0,
    )

    def settle() -> None:
        said.extend(session.events_to_send())
        requests = session.requests_to_submit()
        asked.extend(requests)
        answers = [
            FileDecoded(number=file.number, media=(shown(served, FRAMES[float(file.data)]),))
            for file in session.files_to_decode()
        ]
        events = served.submit(*requests)
        if events or answers:
            session.advance([*answers, *events], 0.0)
            settle()

    session.receive(UpdateSession(changes={"turn_detection": None, "interleave": 1.0}), 0.0)
    for begin in range(0, len(SOUND), 480):
        if begin / RATE_HZ in FRAMES:
            session.receive(AppendPicture(data=str(begin / RATE_HZ).encode()), 0.0)
        session.receive(AppendAudio(data=SOUND[begin : begin + 480].tobytes()), 0.0)
        settle()
    for event in (CommitAudio(), CreateResponse()):
        session.receive(event, 0.0)
        settle()
    return served, said, asked


def shown(served: Served, pixels: np.typing.NDArray[np.uint8]) -> Medium:
    return medium("image", [picture(pixels)], served.intakes["image"])


def offline(asked: list[EngineRequest]) -> Served:
    """Place the same items whole: the first picture, a second of sound, …; tokens as in `asked`."""
    served = Served()
    one = SequenceId(1)
    sound = SOUND.astype(np.float32) / 32768
    frames = list(FRAMES.values())
    first, second, third = (
        [MediaFrame(pts=Pts(0), rate_hz=RATE_HZ, data=part)]
        for part in np.split(sound, [RATE_HZ, 53_760])
    )
    media = [
        ("image", [picture(frames[0])]),
        ("audio", first),
        ("video", [picture(frames[1]), picture(frames[2], 0.5)]),
        ("audio", second),
        ("image", [picture(frames[3])]),
        ("audio", third),
    ]
    tokens = [r.token_ids for r in asked if isinstance(r, AppendTokens)]
    system, head, tail, reply = tokens[:4]
    requests: list[EngineRequest] = [OpenSequence(sequence_id=one)]
    span = 0

    def append(ids: tuple[int, ...]) -> None:
        nonlocal span
        span += 1
        requests.append(AppendTokens(sequence_id=one, span_id=SpanId(span), token_ids=ids))

    append(system)
    append(head)
    for modality, run in media:
        span += 1
        requests.append(OpenSpan(sequence_id=one, span_id=SpanId(span), modality=modality))
        for frame in run:
            requests.append(
                AppendMedia(
                    sequence_id=one,
                    span_id=SpanId(span),
                    pts=frame.pts,
                    dtype="float32" if modality == "audio" else "uint8",
                    shape=frame.data.shape,
                    data=frame.data.tobytes(),
                )
            )
        requests.append(CloseSpan(sequence_id=one, span_id=SpanId(span)))
    append(tail)
    append(reply)
    stops = next(r.sampling.stop_token_ids for r in asked if isinstance(r, Generate))
    sampling = SamplingParams(max_tokens=6, stop_token_ids=stops)
    requests.append(Generate(sequence_id=one, span_id=SpanId(span + 1), sampling=sampling))
    served.submit(*requests)
    return served


def test_interleaved_turn_is_what_its_items_are_offline() -> None:
    live, said, asked = spoken()
    modalities = [r.modality for r in asked if isinstance(r, OpenSpan)]
    assert modalities == ["image", "audio", "video", "audio", "image", "audio"]
    [done] = [e for e in said if isinstance(e, ResponseDone)]
    whole = offline(asked)
    assert live.written() == whole.written() != []
    rows, expected = live.embeds(), whole.embeds()
    torch.testing.assert_close(rows[: len(expected)], expected, atol=1e-5, rtol=0)
    usage = done.response.usage
    assert usage is not None
    prompt = usage.input_text_tokens + usage.input_audio_tokens + usage.input_image_tokens
    assert (usage.input_audio_tokens, usage.input_image_tokens) == (13 + 16 + 10 + 3 * 2, 22)
    assert prompt - usage.cached_tokens == 3  # the end of the message, and the answer's head
