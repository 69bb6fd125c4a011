"""A tiny random Muse Spark checkpoint, and what transformers computes from it, for parity tests.

The checkpoint has every module of the architecture with values that no code path can ignore
unnoticed: all norms, gates and biases are random, one channel of each residual gate reaches the
clamp, the router's bias changes most choices, and widths that the release has equal are different.
"""

import atexit
import functools
import json
import math
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import (
    MuseSparkConfig,
    MuseSparkForConditionalGeneration,
    PreTrainedTokenizerFast,
)

torch.set_num_threads(1)  # sums this small only lose by being shared among cores
transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # untyped there

Oracle = Any
"""A model, configuration or tokenizer of transformers, which types only half of itself."""

CONTROL_TOKENS = (
    *("<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad|>"),
    *("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
    *("<|image_start|>", "<|patch|>", "<|image_end|>"),
    *("<|vid_start|>", "<|video|>", "<|vid_frame_separator|>", "<|vid_end|>"),
    *("<|soft_audio_start|>", "<|audio|>", "<|soft_audio_end|>"),
)
"""Their ids follow the byte-level vocabulary, in this order."""

MERGES = """
Ġ a|s t|a t|m e|r e|e m|e r|n t|Ġ t|o n|at em|a r|a me|a nt|i n|i st|l o|s s|Ġ st|ist ant|ss istant
Ġst re|c t|f u|i s|Ġ n|Ġa ssistant|Ġt o|" >|< /|= "|T i|a m|c o|e l|h at|i on|n d|n ct|o f|o u
s er|u ser|Ġ s|Ġ w|Ġ of|Ġstre am|fu nct|Ġn ame|Ti me|funct ion|R e|a l|a s|c k|c lo|c al|g t|h e
k e|l s|m me|n o|n gt|o l|o r|o ke|p ar|t er|u r|v e|v oke|Ġ re|Ġ is|Ġ co|Ġ user|Ġ Time|Ġ Re|Ġa nd
nt ar|on in|ame ter|in voke|Ġstre ngt|el f|Ġw hat|as onin|clo ck|cal ls|mme ntar|no w|par ameter
ĠRe asonin|Ġstrengt h|mmentar y|ĠReasonin g
"""
"""Byte pairs, learnt once from a few lines of chat with tool calls."""

ZERO_CENTRED = (
    *("input_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    *("pre_expert_norm", "post_expert_norm"),
)
"""Norms that multiply by 1 + weight."""

NUM_STEPS = 12
RATE_HZ = 24_000


def tiny_muse(
    folder: Path,
    *,
    seed: int = 8,
    dense_layer: int | None = None,
    dtype: str = "float32",
    max_positions: int = 4096,
    sharded: bool = False,
) -> Path:
    """Write config, weights, tokenizer and preprocessing settings into `folder`; return it.

    The same seed gives the same bytes; seed 8 has no near-ties in the router on `golden`'s prompt.
    `dense_layer` gets a dense MLP; `sharded` spreads the weights over some ten files and an index.
    In bfloat16 the router stays float32, as released.
    """
    tokenizer = _tokenizer()
    config = _config(tokenizer, dense_layer, max_positions)
    model: Oracle = MuseSparkForConditionalGeneration(config)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(_values(name, tensor.shape, seed, len(tokenizer)))
    for name, parameter in model.named_parameters():
        if not name.endswith("mlp.gate.weight"):
            parameter.data = parameter.data.to(getattr(torch, dtype))
    model.config.dtype = getattr(torch, dtype)
    eot = tokenizer.convert_tokens_to_ids("<|eot|>")
    model.generation_config.eos_token_id = [config.text_config.eos_token_id, eot]
    model.generation_config.pad_token_id = config.text_config.pad_token_id
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, max_shard_size="250KB" if sharded else "50GB")
    tokenizer.save_pretrained(folder)
    (folder / "processor_config.json").write_text(json.dumps(_PREPROCESSING, indent=2) + "\n")
    return folder


@functools.cache
def cached_tiny_muse(**options: Any) -> Path:
    """Return a folder with `tiny_muse(**options)`, written once per process. Read only."""
    folder = Path(tempfile.mkdtemp(prefix="tiny-muse-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return tiny_muse(folder, **options)


@functools.cache
def golden(folder: Path) -> dict[str, Tensor]:
    """Run transformers in float32, eager, on one prompt with pictures, video and sound.

    With T prompt tokens, n media rows and S = NUM_STEPS greedy steps after the prompt:

    `input_ids` [T], `rows` [n, D], `row_positions` [n]   what the decoder is given
    `text.embeds` [T, D]                                  its input with the rows in place
    `text.layer.N` [T, D], `text.router.N` [T, E]         residual after, router logits in layer N
    `text.final` [T, D], `text.logits` [T, V]             after the last norm, after the cap
    `step.ids` [S], `step.logits` [S + 1, V]              greedy continuation with the cache
    `margin` []                                           smallest gap of router scores at the edge
    `vision.features`, `video.features`, `audio.features` rows by modality, `audio.layer.N` stages
    `vision.tower`, `video.tower`, `audio.tower`          encoders before their projection
    `in.*`                                                pixels, samples, grids and masks
    """
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model: Oracle = MuseSparkForConditionalGeneration.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
    )
    inputs, raw = _inputs(tokenizer, model.config)
    with torch.no_grad():
        found = _observe(model, inputs)
        found |= _continue(model, inputs)
    found["margin"] = _margin(model, found)
    ids = inputs["input_ids"][0]
    placeholders = torch.tensor([_id_of(tokenizer, n) for n in ("patch", "video", "audio")])
    positions = torch.isin(ids, placeholders).nonzero()[:, 0]
    found |= {"input_ids": ids, "row_positions": positions}
    found["rows"] = found["text.embeds"][positions]
    found |= {f"in.{name}": value for name, value in (inputs | raw).items()}
    return {name: value.detach().contiguous() for name, value in found.items()}


def _id_of(tokenizer: Oracle, name: str) -> int:
    token_id: int = tokenizer.convert_tokens_to_ids(f"<|{name}|>")
    return token_id


# ---- the checkpoint


def _tokenizer() -> Oracle:
    """Make a byte-level BPE with all control tokens: 369 ids."""
    pairs = (pair.split() for pair in MERGES.strip().replace("\n", "|").split("|"))
    merges = [(left, right) for left, right in pairs]
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(CONTROL_TOKENS))
    fast: Oracle = PreTrainedTokenizerFast
    return fast(
        tokenizer_object=tokenizer,
        bos_token="<|begin_of_text|>",
        eos_token="<|eot|>",
        pad_token="<|finetune_right_pad|>",
        additional_special_tokens=list(CONTROL_TOKENS[3:]),
        clean_up_tokenization_spaces=False,
    )


def _config(tokenizer: Oracle, dense_layer: int | None, max_positions: int) -> Oracle:
    """Make the configuration: the release's phases of layers, all widths different."""
    width, num_layers = 64, 6
    text = {
        "vocab_size": 384,  # more than the tokenizer's 369, as in the release
        "hidden_size": width,
        "intermediate_size": 96,
        "num_hidden_layers": num_layers,  # full attention in layers 1 and 5
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 16,  # 8 · 16 ≠ 64
        "sliding_window": 8,  # a short prompt leaves it
        "max_position_embeddings": max_positions,
        "moe_hidden_size": 40,
        "moe_intermediate_size": 24,
        "num_local_experts": 12,
        "num_experts_per_tok": 3,
        "routed_scaling_factor": 1.5,
        "qk_scale_factor": 1.75,  # the release's 5.47 makes softmax of random keys too sharp
        "output_multiplier": 1 / math.sqrt(width / 256),
        "mlp_layer_types": ["dense" if i == dense_layer else "sparse" for i in range(num_layers)],
        "bos_token_id": _id_of(tokenizer, "begin_of_text"),
        "eos_token_id": _id_of(tokenizer, "end_of_text"),
        "pad_token_id": _id_of(tokenizer, "finetune_right_pad"),
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 80,
        "num_hidden_layers": 5,
        "num_attention_heads": 2,
        "patch_size": 14,
        "patch_temporal": 2,
        "merge_size": 2,
        "pos_emb_height": 4,  # so are the windows of attention: 4 × 4 patches
        "pos_emb_width": 4,
        "max_position_embeddings": 16,
    }
    audio = {
        "patch_sizes": [16, 6, 5, 4],
        "hidden_sizes": [16, 24, 32, 48],
        "depths": [2, 2, 2, 2],
        "num_hidden_layers": 4,
        "out_hidden_size": width,
    }
    return MuseSparkConfig(
        text_config=text,
        vision_config=vision,
        audio_config=audio,
        out_hidden_size=32 * 2**2,
        projector_hidden_size=56,
        image_token_id=_id_of(tokenizer, "patch"),
        video_token_id=_id_of(tokenizer, "video"),
        audio_token_id=_id_of(tokenizer, "audio"),
        architectures=["MuseSparkForConditionalGeneration"],
    )


def _values(name: str, shape: torch.Size, seed: int, num_tokens: int) -> Tensor:
    """Draw a tensor by its name; its seed depends on nothing else, so order doesn't matter."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    noise = torch.randn(shape, generator=generator)
    owner, leaf = name.split(".")[-2:] if "." in name else ("", name)
    if leaf == "gate":
        gate = 0.4 * noise - 0.2
        gate[:2] = torch.tensor([3.0, -3.0])  # β = 1: α is clamped
        return gate
    if leaf == "e_score_correction_bias" or owner in ZERO_CENTRED:
        return 0.3 * noise
    if "norm" in owner or owner in ("ln_pre", "ln_post"):
        return 0.3 * noise + (leaf == "weight")
    if leaf == "bias":
        return 0.1 * noise
    if owner == "embed_tokens":
        return noise
    if owner == "position_embedding_table":
        return 0.5 * noise
    if owner == "lm_head":  # large enough to bend the cap; ids without a token never win
        head = noise * 4 / math.sqrt(shape[-1])
        head[num_tokens:] = 0
        return head
    fan_in = shape[-1] * (shape[-2] if owner == "conv" else 1)
    return noise / math.sqrt(fan_in)


_PREPROCESSING: dict[str, Any] = {
    "processor_class": "MuseSparkProcessor",
    "image_processor": {
        "image_processor_type": "MuseGlimmerImageProcessor",
        "max_image_tokens": 64,
    },
    "video_processor": {
        "video_processor_type": "MuseGlimmerVideoProcessor",
        "max_video_frame_tokens": 16,
        "num_frames": 8,
        "fps": 2.0,
        "frame_timestamp_format": "Time: {timestamp:.2f}s",
    },
    "feature_extractor": {
        "feature_extractor_type": "MuseSparkFeatureExtractor",
        "sampling_rate": RATE_HZ,
        "samples_per_token": 1920,
    },
}


# ---- the golden prompt: two pictures (wide, tall), three frames of video, two clips of sound


def _picture(rows: int, columns: int, shift: int) -> npt.NDArray[np.uint8]:
    """Paint [14·rows, 14·columns, 3], every pixel and channel unlike its neighbours."""
    y, x = np.indices((14 * rows, 14 * columns))
    red = (3 * x + 5 * y + 17 * shift) % 256
    green = (x * y // 7 + 31 * shift) % 256
    blue = 255 * (np.sin((x + 2 * y) / 9 + shift) + 1) / 2
    return np.stack([red, green, blue], axis=-1).astype(np.uint8)


def _sweep(num_samples: int, first_hz: float, last_hz: float) -> npt.NDArray[np.float32]:
    """Make a tone that glides and fades, over a faint steady one."""
    t = np.arange(num_samples) / RATE_HZ
    glide = first_hz * t + (last_hz - first_hz) * t**2 / (2 * num_samples / RATE_HZ)
    tone = 0.4 * np.sin(2 * np.pi * glide) * np.exp(-1.5 * t)
    return (tone + 0.02 * np.sin(2 * np.pi * 3111 * t)).astype(np.float32)


def _patches(frames: npt.NDArray[np.uint8]) -> tuple[Tensor, list[int]]:
    """[F, H, W, 3] → [groups · rows · columns, 2·3·14·14] and that grid; F odd: last one twice."""
    if len(frames) % 2:
        frames = np.concatenate([frames, frames[-1:]])
    pixels = (torch.from_numpy(frames).float() / 255.0 - 0.5) / 0.5
    grid = [len(frames) // 2, frames.shape[1] // 14, frames.shape[2] // 14]
    split = pixels.reshape(grid[0], 2, grid[1], 14, grid[2], 14, 3)
    return split.permute(0, 2, 4, 1, 6, 3, 5).reshape(math.prod(grid), -1).contiguous(), grid


def _inputs(tokenizer: Oracle, config: Oracle) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return transformers' arguments, and the pixels and samples they are made of."""
    pictures = [_picture(6, 10, 1), _picture(8, 4, 2)]
    video = np.stack([_picture(4, 6, 3 + i) for i in range(3)])
    clips = [_sweep(12_000, 200, 2_000), _sweep(5_000, 900, 300)]
    patches, grids = zip(*(_patches(np.stack([p, p])) for p in pictures), strict=True)
    video_patches, video_grid = _patches(video)
    per_token = config.audio_config.samples_per_token
    longest = -(-max(len(clip) for clip in clips) // per_token) * per_token
    lengths = torch.tensor([len(clip) for clip in clips])
    waves = [np.pad(clip, (0, longest - len(clip))) for clip in clips]

    def image(grid: list[int]) -> str:
        return f"<|image_start|>{'<|patch|>' * (grid[1] * grid[2] // 4)}<|image_end|>"

    def sound(clip: npt.NDArray[np.float32]) -> str:
        return f"<|soft_audio_start|>{'<|audio|>' * -(-len(clip) // per_token)}<|soft_audio_end|>"

    group = "<|video|>" * (video_grid[1] * video_grid[2] // 4)
    film = "<|vid_frame_separator|>".join(f"Time: {i:.2f}s{group}" for i in range(video_grid[0]))
    prompt = (
        "<|begin_of_text|><|start|>system<|message|>You are a helpful AI assistant.<|eot|>"
        f"<|start|>user<|message|>{image(grids[0])}{sound(clips[0])}"
        "what is that noise, and what colour is the square?"
        f"<|vid_start|>{film}<|vid_end|>{image(grids[1])} words {sound(clips[1])}"
        "<|eot|><|start|>assistant"
    )
    inputs = {
        "input_ids": torch.tensor([tokenizer.encode(prompt, add_special_tokens=False)]),
        "pixel_values": torch.cat(patches),
        "image_grid_thw": torch.tensor(grids),
        "pixel_values_videos": video_patches,
        "video_grid_thw": torch.tensor([video_grid]),
        "input_values": torch.from_numpy(np.stack(waves)),
        "input_values_mask": (torch.arange(longest) < lengths[:, None]).int(),
    }
    raw = {f"image_u8.{i}": torch.from_numpy(picture) for i, picture in enumerate(pictures)}
    raw |= {f"clip.{i}": torch.from_numpy(clip) for i, clip in enumerate(clips)}
    return inputs, raw | {"video_u8": torch.from_numpy(video)}


# ---- what transformers computes


def _observe(model: Oracle, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Run the prompt once and collect what passes through each module."""
    found: dict[str, Tensor] = {}
    core, decoder = model.model, model.model.language_model

    def keep(name: str, pick: Callable[[Any], Tensor]) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            found[name] = pick(output).clone()

        return hook

    def keep_embeds(_module: nn.Module, _inputs: Any, named: dict[str, Any]) -> None:
        found["text.embeds"] = named["inputs_embeds"][0].clone()

    hooks = [decoder.register_forward_pre_hook(keep_embeds, with_kwargs=True)]
    hooks.append(
        decoder.register_forward_hook(keep("text.final", lambda o: o.last_hidden_state[0]))
    )
    for i, layer in enumerate(decoder.layers):
        hooks.append(layer.register_forward_hook(keep(f"text.layer.{i}", lambda o: o[0])))
        if hasattr(layer.mlp, "gate"):
            router = keep(f"text.router.{i}", lambda o: o[0])
            hooks.append(layer.mlp.gate.register_forward_hook(router))
    for i, stage in enumerate(core.audio_tower.layers):
        hooks.append(stage.register_forward_hook(keep(f"audio.layer.{i}", lambda o: o)))
    found["text.logits"] = model(**inputs).logits[0]
    for hook in hooks:
        hook.remove()
    for name, suffix in (("vision", ""), ("video", "_videos")):
        grid = inputs["image_grid_thw" if name == "vision" else "video_grid_thw"]
        seen = core.get_image_features(inputs[f"pixel_values{suffix}"], grid)
        found[f"{name}.tower"] = seen.last_hidden_state
        found[f"{name}.features"] = torch.cat(tuple(seen.pooler_output))
    heard = core.get_audio_features(inputs["input_values"], inputs["input_values_mask"])
    found["audio.tower"] = heard.last_hidden_state
    found["audio.features"] = heard.pooler_output
    return found


def _continue(model: Oracle, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take NUM_STEPS greedy steps with the cache."""
    result = model(**inputs, use_cache=True)
    logits, ids = [result.logits[0, -1]], []
    for _ in range(NUM_STEPS):
        ids.append(logits[-1].argmax())
        result = model(input_ids=ids[-1].view(1, 1), cache=result.cache, use_cache=True)
        logits.append(result.logits[0, -1])
    return {"step.ids": torch.stack(ids), "step.logits": torch.stack(logits)}


def _margin(model: Oracle, found: dict[str, Tensor]) -> Tensor:
    """Smallest gap between the last expert chosen and the first one not."""
    gaps = []
    for i, layer in enumerate(model.model.language_model.layers):
        if f"text.router.{i}" in found:
            gate = layer.mlp.gate
            scores = found[f"text.router.{i}"].sigmoid() + gate.e_score_correction_bias
            best = scores.topk(gate.top_k + 1).values
            gaps.append((best[:, -2] - best[:, -1]).min())
    return torch.stack(gaps).min()
