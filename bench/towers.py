"""Muse's towers at the release's sizes with random weights: ours, and transformers' of the same.

The audio tower is whole: 118M parameters. Of the vision tower's 50 layers (1.85 B) four are there,
in the release's ratio of windows to whole pictures; what they take is extrapolated.
"""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sensorium.encoders.base import ClipHints, EncoderSources
from sensorium.encoders.media import MediaFrame, Pts, Samples
from sensorium.encoders.muse_audio import MuseAudio, MuseClip
from sensorium.encoders.muse_audio_tower import TowerConfig
from sensorium.encoders.vit import Group, VisionTower
from sensorium.encoders.vit_config import VitConfig
from sensorium.encoders.vit_layout import Layout, cut

Oracle = Any
"""A model of transformers, which types only half of itself."""

WIDTH = 8192
ALL_LAYERS, SOME_LAYERS = 50, 4
HOP, RATE_HZ = 1920, 24_000


@dataclass(frozen=True)
class Towers:
    """Both sides' towers in one type, of the same numbers. `bare` is `vision` without layers."""

    dtype: torch.dtype
    sizes: TowerConfig
    audio: MuseAudio
    vision: VisionTower
    bare: VisionTower
    peer: Oracle

    def hear(self, samples: Samples, clips: list[MuseClip]) -> Tensor:
        """Encode `samples` [S, HOP], a hop for each of S streams: [S, D]."""
        frames: list[tuple[MediaFrame, ...]]
        frames = [(MediaFrame(pts=Pts(0), rate_hz=RATE_HZ, data=hop),) for hop in samples]
        return torch.cat([out.rows[0].values for out in self.audio.push(frames, clips)])

    def open(self, count: int) -> list[MuseClip]:
        """Begin streams."""
        return [self.audio.open(ClipHints()) for _ in range(count)]

    @torch.no_grad()
    def peer_hears(self, samples: Samples, cache: object) -> Tensor:
        """Encode as `hear` by transformers, all streams in step: they share `cache`."""
        values = torch.from_numpy(samples).to(self.dtype)
        rows: Tensor = self.peer.model.audio_tower(values, padding_cache=cache).last_hidden_state
        return F.rms_norm(rows[:, 0], (WIDTH,), None, 1e-5)

    @torch.no_grad()
    def peer_sees(self, group: Group) -> Tensor:
        """Encode one picture or group of frames by transformers: [cells, D]."""
        grid = torch.tensor([[1, group.shape[1] // 14, group.shape[2] // 14]])
        rows: Tensor = self.peer.model.get_image_features(cut(group, 14).to(self.dtype), grid)[1][0]
        return rows


def make_towers() -> list[Towers]:
    """Make the towers in float32 and bfloat16, and check that both sides compute the same."""
    peer = _peer()
    state = peer.state_dict()
    made = []
    for dtype in (torch.float32, torch.bfloat16):
        sources = EncoderSources(
            config=peer.config.to_dict(),
            folder=Path("/nonexistent"),  # no preprocessing files: the usual rate
            tensor=state.__getitem__,
            model=lambda role: None,
            threads=1,
            dtype=dtype,
        )
        audio = MuseAudio.load(sources)
        assert audio is not None
        config = VitConfig.from_json(sources.config)
        vision = VisionTower(config, sources.tensor, dtype)
        bare = VisionTower(replace(config, windowed=()), sources.tensor, dtype)
        its = peer if dtype is torch.float32 else copy.deepcopy(peer).to(dtype)
        made.append(Towers(dtype, TowerConfig.read(sources.config), audio, vision, bare, its))
        _check(made[-1], 1e-4 if dtype is torch.float32 else 0.1)
    return made


def _check(towers: Towers, most: float) -> None:
    from transformers.models.muse_spark import modeling_muse_spark as muse_spark

    random = np.random.default_rng(0)
    cache = muse_spark.MuseSparkAudioConv1dPaddingCache()  # type: ignore[no-untyped-call]  # untyped there
    clips = towers.open(3)
    group = random.integers(0, 256, (2, 84, 56, 3), np.uint8)
    pairs = [(towers.vision.encode([group])[0], towers.peer_sees(group))]
    for _ in range(3):
        samples = random.normal(0, 0.1, (3, HOP)).astype(np.float32)
        pairs.append((towers.hear(samples, clips), towers.peer_hears(samples, cache)))
    for ours, theirs in pairs:
        off = float((ours.float() - theirs.float()).abs().mean())
        if not off < most:
            raise SystemExit(f"{towers.dtype}: rows are {off:.1e} off on average, not below {most}")


def _peer() -> Oracle:
    """Make transformers' model: its decoder as small as can be, save for the rows' width."""
    from transformers import MuseSparkConfig, MuseSparkForConditionalGeneration

    text = {
        "vocab_size": 64,
        "hidden_size": WIDTH,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "moe_hidden_size": 8,
        "moe_intermediate_size": 8,
        "num_local_experts": 1,
        "num_experts_per_tok": 1,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    config = MuseSparkConfig(
        text_config=text,
        vision_config={"num_hidden_layers": SOME_LAYERS},
        audio_config={},
        image_token_id=10,
        video_token_id=11,
        audio_token_id=12,
    )
    torch.manual_seed(0)
    with torch.device("meta"):  # its own random numbers would take a minute
        model: Oracle = MuseSparkForConditionalGeneration(config)
    # Parameters keep their gradients' flag, as after from_pretrained: without it torch's products
    # of three-dimensional tensors copy the weight for each stream, which is many times slower.
    model = model.to_empty(device="cpu").eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim >= 2:
                value.normal_(std=value[0].numel() ** -0.5)
            else:
                value.fill_(0.0 if name.endswith("bias") else 1.0)
    tower = model.model.vision_tower
    tower.rotary_emb = type(tower.rotary_emb)(config.vision_config)  # its frequencies
    return model


# --- what must be computed ----------------------------------------------------------------------


def audio_flops(config: TowerConfig) -> float:
    """Operations of one hop: two a multiplication of the matrices and convolutions."""
    products, frames, width = 0, config.hop_samples, 1
    for fold, wider, depth in zip(config.folds, config.widths, config.depths, strict=True):
        frames //= fold
        block = 2 * int(wider * config.mlp_ratio) * wider + config.kernel * wider
        products += frames * (fold * width * wider + depth * block)
        width = wider
    return 2.0 * (products + width * config.out_width)


def audio_numbers(config: TowerConfig) -> int:
    """Parameters of the matrices, which every pass reads whatever its batch."""
    numbers, width = 0, 1
    for fold, wider, depth in zip(config.folds, config.widths, config.depths, strict=True):
        numbers += fold * width * wider + depth * 2 * int(wider * config.mlp_ratio) * wider
        width = wider
    return numbers + width * config.out_width


def vision_flops(config: VitConfig, grid: tuple[int, int]) -> float:
    """Operations of one group through all of the release's layers, attention included."""
    num, width = grid[0] * grid[1], config.width
    pairs = {True: sum(n * n for n in Layout.of(grid, config).windows), False: num * num}
    whole = ALL_LAYERS // 4 + 1  # every fourth and the last
    layer = num * (4 * width * width + 2 * width * config.inner_width)
    attention = 2 * width * ((ALL_LAYERS - whole) * pairs[True] + whole * pairs[False])
    per_cell, projected = width * config.merge**2, config.projected_width
    projector = projected * (per_cell + projected + config.decoder_width)
    first = config.frames_per_group * 3 * config.patch_px**2 * width
    cells = num // config.merge**2
    return 2.0 * (num * first + ALL_LAYERS * layer + attention + cells * projector)
