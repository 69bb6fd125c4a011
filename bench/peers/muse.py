"""Writes a random Muse checkpoint of about 100M parameters in the published layout.

Made by transformers, so that both sides read one file. Widths keep the release's proportions where
its size allows: GQA, sliding and full layers in the same phase (full where (L-1-i) % 4 == 0), a
latent mixture of experts of half the residual width that holds most of the parameters. The towers
for sound and pictures are there, as small as they can be.
"""

import math
from pathlib import Path

import torch

LAYERS, WIDTH, EXPERTS, WINDOW, VOCABULARY = 14, 512, 32, 512, 16_384


def write_muse(folder: Path, dtype: torch.dtype) -> None:
    """Write config.json and model.safetensors; the router stays in float32, as released."""
    from transformers import MuseSparkConfig, MuseSparkForConditionalGeneration

    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": 1024,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "sliding_window": WINDOW,
        "max_position_embeddings": 4096,
        "moe_hidden_size": WIDTH // 2,
        "moe_intermediate_size": 192,
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": 4,
        "output_multiplier": 1 / math.sqrt(WIDTH / 256),
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "pos_emb_height": 4,
        "pos_emb_width": 4,
        "max_position_embeddings": 16,
    }
    audio = {
        "patch_sizes": [16, 6, 5, 4],
        "hidden_sizes": [8, 8, 8, 8],
        "depths": [2, 2, 2, 2],
        "num_hidden_layers": 4,
        "out_hidden_size": WIDTH,
    }
    config = MuseSparkConfig(
        text_config=text,
        vision_config=vision,
        audio_config=audio,
        out_hidden_size=32 * 4,
        projector_hidden_size=32,
        image_token_id=10,
        video_token_id=11,
        audio_token_id=12,
        architectures=["MuseSparkForConditionalGeneration"],
    )
    torch.manual_seed(0)
    model = MuseSparkForConditionalGeneration(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim >= 2:  # as spread as trained ones: experts differ, tokens vary
                value.normal_(std=1.0 if "embed" in name else value.shape[-1] ** -0.5)
            if not name.endswith("mlp.gate.weight"):
                value.data = value.data.to(dtype)
    model.config.dtype = dtype
    model.save_pretrained(folder)
