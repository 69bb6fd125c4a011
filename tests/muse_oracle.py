"""A tiny Muse that writes messages, and what transformers answers offline to pictures and sound.

Nothing here uses our encoders, decoders or sizes: pixels are sized by Pillow as SPEC 4.5 and 4.6
say, samples are PCM as it is, rows and tokens are transformers' own. Only the words of prompts are
written, and replies read, by `core.text`, which is compared with chat templates elsewhere.
"""

import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from muse_checkpoint import Oracle, _patches, tiny_muse
from numpy.typing import NDArray
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import MuseSparkForConditionalGeneration

from sensorium.core.text.channels import ChannelDelta, ChannelEvent, MessageEnded
from sensorium.core.text.prompt import Prompt, load_prompt

CELL_PX = 28
_VOCAB_SIZE = 384
IMAGE_CELLS, VIDEO_CELLS, MAX_FRAMES, FPS = 64, 16, 8, 2.0
SAMPLES_PER_ROW = 1920

# ---- a checkpoint that writes messages

_HEADERS = {"ssistant": (" to",), " to": ("=",), "=": ("s", "user"), "s": ("elf",)}
_RECIPIENTS = ("elf", "user")
_BODY = (
    *(" is", " n", " of", " what", " re", " co", " stream", "er", "ou"),
    *("am", "al", "as", ".", " w", " name", " Time", "ke", "ol"),
)
_NUM_WALKS, _LEN_WALK = 24, 96
_GATES = -0.3
_NOISE = 0.05


def talking_muse(folder: Path) -> Path:
    """Write `tiny_muse` with another `lm_head`: its replies are headers, bodies and ends.

    The head is fitted to the states that random walks over such tokens leave, so that what may
    follow depends on the last token; which of that does, on everything before it. Residual gates
    are a little more closed, for the last token to show in the states.
    """
    tiny_muse(folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, gate in tensors.items():
        if name.endswith("residual_gate.gate"):
            gate[2:] += _GATES  # the first two are clamped
    save_file(tensors, path, metadata={"format": "pt"})
    prompt, model = load_prompt(folder), _load(folder)
    follows = _followers(prompt)
    walks = _walks(prompt, follows)
    with torch.no_grad():
        states = model.model.language_model(input_ids=walks).last_hidden_state
    begin = len(prompt.preamble(_INSTRUCTIONS))
    head = _fitted(states[:, begin:].flatten(0, 1), walks[:, begin:].flatten(), follows)
    head /= model.config.text_config.output_multiplier
    alternatives = [_only(prompt, text) for text in (*_BODY, *_HEADERS["="])]
    alternatives += [prompt.tokenizer.control(end) for end in ("<|eom|>", "<|eot|>")]
    head[alternatives] += _NOISE * tensors["lm_head.weight"][alternatives]
    save_file(tensors | {"lm_head.weight": head.contiguous()}, path, metadata={"format": "pt"})
    return folder


_INSTRUCTIONS = "Say what you notice."


def _followers(prompt: Prompt) -> dict[int, dict[int, float]]:
    """Token → the tokens that may follow it, and how likely each."""
    names = ("message", "eom", "eot", "start")
    message, eom, eot, start = (prompt.tokenizer.control(f"<|{name}|>") for name in names)
    begin, role = prompt.text("assistant")
    bodies = dict.fromkeys((_only(prompt, text) for text in _BODY), 1.0)
    follows = {
        _only(prompt, text): dict.fromkeys((_only(prompt, t) for t in after), 1.0)
        for text, after in _HEADERS.items()
    }
    follows |= {_only(prompt, text): {message: 1.0} for text in _RECIPIENTS}
    follows |= {message: bodies, eom: {start: 1.0}, start: {begin: 1.0}, begin: {role: 1.0}}
    return follows | {body: bodies | {eom: 1.3, eot: 0.7} for body in bodies}


def _only(prompt: Prompt, text: str) -> int:
    (token_id,) = prompt.text(text)
    return token_id


def _walks(prompt: Prompt, follows: Mapping[int, Mapping[int, float]]) -> Tensor:
    """[_NUM_WALKS, T]: the instructions, then replies without end."""
    generator = torch.Generator().manual_seed(1)
    head = [*prompt.preamble(_INSTRUCTIONS), *prompt.open_reply()]
    walks = []
    for _ in range(_NUM_WALKS):
        walk = list(head)
        while len(walk) < len(head) + _LEN_WALK:
            after = {t: chance for t, chance in follows[walk[-1]].items() if t in follows}
            chances = torch.tensor(list(after.values()))
            walk.append(list(after)[int(torch.multinomial(chances, 1, generator=generator))])
        walks.append(walk)
    return torch.tensor(walks)


def _fitted(states: Tensor, ids: Tensor, follows: Mapping[int, Mapping[int, float]]) -> Tensor:
    """Fit a head [V, D] to states [n, D] by cross-entropy with what may follow `ids` [n]."""
    target = torch.zeros(len(ids), _VOCAB_SIZE)
    for row, token_id in zip(target, ids.tolist(), strict=True):
        for after, chance in follows.get(token_id, {}).items():
            row[after] = chance / sum(follows[token_id].values())
    head = torch.zeros(_VOCAB_SIZE, states.shape[-1], requires_grad=True)
    search: Any = torch.optim.LBFGS([head], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        likeness = (target * (states @ head.T).log_softmax(-1)).sum(-1).mean()
        value: Any = 3e-4 * head.square().sum() - likeness
        value.backward()
        return value

    search.step(loss)
    return head.detach()


def _load(folder: Path) -> Oracle:
    return MuseSparkForConditionalGeneration.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
    )


# ---- items as transformers takes them


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Pixels [H, W, 3] of whole cells."""

    pixels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Video:
    """Chosen frames [F, H, W, 3] of whole cells, and the time of each."""

    frames: NDArray[np.uint8]
    times_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """Samples [n] at 24 kHz."""

    samples: NDArray[np.float32]


Content = str | Picture | Video | Clip
_MODALITIES: Mapping[type, str] = {Picture: "image", Video: "video", Clip: "audio"}


def picture(data: bytes) -> Picture:
    """Decode a picture file, upright, on white, and size it."""
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    return Picture(pixels=_sized(upright, IMAGE_CELLS))


def clip(pcm: bytes) -> Clip:
    """Return 16-bit samples."""
    return Clip(samples=np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768))


def video(data: bytes) -> Video:
    """Decode a video file of constant rate and choose its frames as SPEC 4.6 says."""
    with av.open(io.BytesIO(data), "r") as container:
        shown = [
            (float(f.time or 0), Image.fromarray(f.to_ndarray(format="rgb24")))
            for f in container.decode(video=0)
        ]
    total = len(shown)
    rate = round((total - 1) / (shown[-1][0] - shown[0][0]))
    num = min(math.floor(total * FPS / rate), MAX_FRAMES, total)
    num = min(total, max(2, 2 * (num // 2)))
    chosen = [shown[int(index)] for index in np.linspace(0, total - 1, num)]
    frames = np.stack([_sized(image, VIDEO_CELLS) for _, image in chosen])
    return Video(frames=frames, times_s=tuple(time_s - shown[0][0] for time_s, _ in chosen))


def sound_of(data: bytes) -> Clip:
    """Decode the sound of a file that has it as 16-bit samples at 24 kHz."""
    with av.open(io.BytesIO(data), "r") as container:
        pieces = [frame.to_ndarray().ravel() for frame in container.decode(audio=0)]
    return clip(np.concatenate(pieces).astype("<i2").tobytes())


def _sized(image: Image.Image, max_cells: int) -> NDArray[np.uint8]:
    rows, columns = image.height / CELL_PX, image.width / CELL_PX
    if rows * columns > max_cells:
        ratio = columns / rows
        rows = math.sqrt(max_cells / ratio)
        columns = rows * ratio
    around = itertools.product(
        (math.floor(rows), math.ceil(rows)), (math.floor(columns), math.ceil(columns))
    )
    fitting = [(r, c) for r, c in around if r >= 1 and c >= 1 and r * c <= max_cells]
    r, c = min(fitting, key=lambda grid: abs(grid[0] / grid[1] - image.height / image.width))
    return np.asarray(image.resize((c * CELL_PX, r * CELL_PX), Image.Resampling.LANCZOS))


# ---- answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a reply; `end` is "eom", "eot" or "cut"."""

    channel: str
    text: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What transformers writes, and how sure it is.

    `ids` go to a limit, or to the stop token, without it, if the answer `is_complete`.
    `num_prompt` positions stood before it, `num_heard` of them rows of sound and their marks,
    `num_seen` those of pictures and videos. `gap` is the smallest difference of the two best
    logits, `margin` the router's between the last expert chosen and the next.
    """

    ids: tuple[int, ...]
    is_complete: bool
    messages: tuple[Message, ...]
    num_prompt: int
    num_heard: int
    num_seen: int
    gap: float
    margin: float

    @property
    def text(self) -> str:
        """What is addressed to the user."""
        return "".join(m.text for m in self.messages if m.channel == "user")


class Offline:
    """transformers on a checkpoint, one prompt at a time, in float32."""

    def __init__(self, folder: Path) -> None:
        self._model = _load(folder)
        self.prompt = load_prompt(folder)

    def rows(self, content: Picture | Video | Clip) -> Tensor:
        """[n, D]: what stands in the slots of one medium."""
        inputs = _inputs([content])
        core = self._model.model
        with torch.no_grad():
            match content:
                case Clip():
                    found = core.get_audio_features(
                        inputs["input_values"], inputs["input_values_mask"]
                    )
                case Picture():
                    found = core.get_image_features(
                        inputs["pixel_values"], inputs["image_grid_thw"]
                    )
                case Video():
                    found = core.get_video_features(
                        inputs["pixel_values_videos"], inputs["video_grid_thw"]
                    )
        made = found.pooler_output
        rows: Tensor = torch.cat(tuple(made)) if isinstance(made, tuple | list) else made
        return rows

    def logits(self, ids: Sequence[int], media: Sequence[Picture | Video | Clip]) -> Tensor:
        """[T, V] after ids with placeholders."""
        with torch.no_grad():
            result = self._model(input_ids=torch.tensor([ids]), **_inputs(media))
        logits: Tensor = result.logits[0]
        return logits

    def slots(self, content: Content) -> list[int]:
        """Return the ids of a part of a message, with placeholders for rows."""
        if isinstance(content, str):
            return list(self.prompt.text(content))
        modality = type(content).__name__.lower()
        marks = self.prompt.media_marks(
            {"picture": "image", "clip": "audio"}.get(modality, modality)
        )
        assert marks is not None
        match content:
            case Picture(pixels=pixels):
                body = [marks.placeholder] * _num_cells(pixels.shape[:2])
            case Clip(samples=samples):
                body = [marks.placeholder] * -(-len(samples) // SAMPLES_PER_ROW)
            case Video(frames=frames, times_s=times_s):
                assert marks.separator is not None
                body = []
                for time_s in times_s[::2]:
                    body += [marks.separator] * bool(body)
                    body += self.prompt.text(f"Time: {time_s:.2f}s")
                    body += [marks.placeholder] * _num_cells(frames.shape[1:3])
        return [marks.start, *body, marks.end]

    def answer(
        self, instructions: str, items: Sequence[Sequence[Content] | Answer], max_tokens: int
    ) -> Answer:
        """Answer greedily to messages of the user, each of some parts, and earlier answers."""
        ids = [*self.prompt.preamble(instructions)]
        media: list[Content] = []
        counts = {Clip: 0, Picture: 0, Video: 0, str: 0}
        for item in items:
            if isinstance(item, Answer):
                ids += [*self.prompt.open_reply(), *item.ids, *self.prompt.close_message()]
                continue
            ids += self.prompt.open_message("user")
            for content in item:
                ids += (slots := self.slots(content))
                counts[type(content)] += len(slots)
                media.append(content)
            ids += self.prompt.close_message()
        ids += self.prompt.open_reply()
        new_ids, gap, margin = self._generate(ids, _inputs(media), max_tokens)
        is_complete = new_ids[-1] in self.prompt.stop_token_ids
        new_ids = new_ids[:-1] if is_complete else new_ids
        return Answer(
            ids=new_ids,
            is_complete=is_complete,
            messages=tuple(self._messages(new_ids, cut=not is_complete)),
            num_prompt=len(ids),
            num_heard=counts[Clip],
            num_seen=counts[Picture] + counts[Video],
            gap=gap,
            margin=margin,
        )

    def _generate(
        self, ids: Sequence[int], inputs: Mapping[str, Tensor], max_tokens: int
    ) -> tuple[tuple[int, ...], float, float]:
        margins: list[float] = []

        def watch(gate: Any, _inputs: Any, output: Any) -> None:
            scores = output[0].sigmoid() + gate.e_score_correction_bias
            best = scores.topk(gate.top_k + 1).values
            margins.append(float((best[..., -2] - best[..., -1]).min()))

        layers = self._model.model.language_model.layers
        hooks = [layer.mlp.gate.register_forward_hook(watch) for layer in layers]
        with torch.no_grad():
            made = self._model.generate(
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
                **inputs,
                do_sample=False,
                max_new_tokens=max_tokens,
                return_dict_in_generate=True,
                output_logits=True,
            )
        for hook in hooks:
            hook.remove()
        best = torch.cat(made.logits).topk(2).values
        gap = float((best[:, 0] - best[:, 1]).min())
        return tuple(made.sequences[0, len(ids) :].tolist()), gap, min(margins)

    def _messages(self, ids: Sequence[int], *, cut: bool) -> Iterable[Message]:
        stream = self.prompt.stream()
        text = ""
        events: list[ChannelEvent] = stream.push(ids)
        for event in [*events, *stream.finish(cut=cut)]:
            if isinstance(event, ChannelDelta):
                text += event.text
            elif isinstance(event, MessageEnded):
                yield Message(channel=event.channel, text=text, end=event.end)
                text = ""


def _num_cells(size: tuple[int, ...]) -> int:
    return math.prod(side // CELL_PX for side in size)


def _inputs(media: Iterable[Content]) -> dict[str, Tensor]:
    """Return transformers' arguments for media, in the order of their placeholders."""
    media = list(media)
    inputs: dict[str, Tensor] = {}
    stills = [_patches(np.stack([m.pixels] * 2)) for m in media if isinstance(m, Picture)]
    films = [_patches(m.frames) for m in media if isinstance(m, Video)]
    for shown, suffix, kind in ((stills, "", "image"), (films, "_videos", "video")):
        if shown:
            inputs[f"pixel_values{suffix}"] = torch.cat([patches for patches, _ in shown])
            inputs[f"{kind}_grid_thw"] = torch.tensor([grid for _, grid in shown])
    waves = [m.samples for m in media if isinstance(m, Clip)]
    if waves:
        longest = -(-max(map(len, waves)) // SAMPLES_PER_ROW) * SAMPLES_PER_ROW
        padded = [np.pad(wave, (0, longest - len(wave))) for wave in waves]
        lengths = torch.tensor(list(map(len, waves)))
        inputs["input_values"] = torch.from_numpy(np.stack(padded))
        inputs["input_values_mask"] = (torch.arange(longest) < lengths[:, None]).int()
    return inputs
