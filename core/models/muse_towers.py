"""The tensors of Muse Spark's encoders: names and shapes of both towers, from config.json alone.

The decoder doesn't load them, but a checkpoint must hold exactly them beside its own. Free of
torch. Layout: Hugging Face's `MuseSparkForConditionalGeneration`.
"""

from collections.abc import Mapping
from typing import Any

from sensorium.core.errors import BadCheckpoint

Shapes = dict[str, tuple[int, ...]]

_RGB = 3


def tower_shapes(config: Mapping[str, Any]) -> Shapes:
    """Return every tensor of both towers and of what joins them to the decoder.

    `config` is the parsed config.json. Raises BadCheckpoint for what is missing in it.
    """
    return vision_shapes(config) | audio_shapes(config)


def vision_shapes(config: Mapping[str, Any]) -> Shapes:
    """Return the vision tower, its adapter and projection. Raises BadCheckpoint."""
    try:
        vision = config["vision_config"]
        width, inner = int(vision["hidden_size"]), int(vision["intermediate_size"])
        patch = int(vision["patch_temporal"]) * _RGB * int(vision["patch_size"]) ** 2
        positions = int(vision["pos_emb_height"]) * int(vision["pos_emb_width"])
        num_layers = int(vision["num_hidden_layers"])
        merged = width * int(vision["merge_size"]) ** 2
        projected = int(config["projector_hidden_size"])
        decoder_width = int(config["text_config"]["hidden_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise _incomplete(error) from error
    tower = "model.vision_tower"
    shapes: Shapes = {
        f"{tower}.patch_embedder.patch_embedding.weight": (width, patch),
        f"{tower}.patch_embedder.position_embedding_table.weight": (positions, width),
        "model.vision_adapter.fc1.weight": (projected, merged),
        "model.vision_adapter.fc2.weight": (projected, projected),
        "model.vision_projection.weight": (decoder_width, projected),
    }
    for norm in ("ln_pre", "ln_post"):
        shapes |= _with_bias(f"{tower}.{norm}", (width,))
    for i in range(num_layers):
        layer = f"{tower}.layers.{i}"
        for norm in ("norm1", "norm2"):
            shapes |= _with_bias(f"{layer}.{norm}", (width,))
        for matrix in ("q_proj", "k_proj", "v_proj", "proj"):
            shapes |= _with_bias(f"{layer}.attn.{matrix}", (width, width))
        shapes |= _mlp(f"{layer}.mlp", width, inner)
    return shapes


def audio_shapes(config: Mapping[str, Any]) -> Shapes:
    """Return the audio tower with its projection. Raises BadCheckpoint.

    Each stage folds frames of the one before: the first folds samples, of width 1.
    """
    try:
        audio = config["audio_config"]
        folds = [int(fold) for fold in audio["patch_sizes"]]
        widths = [int(width) for width in audio["hidden_sizes"]]
        depths = [int(depth) for depth in audio["depths"]]
        kernel, ratio = int(audio["conv_kernel_size"]), float(audio["mlp_ratio"])
        decoder_width = int(config["text_config"]["hidden_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise _incomplete(error) from error
    if not len(folds) == len(widths) == len(depths) > 0:
        raise BadCheckpoint(
            "config.json: audio_config must have as many patch_sizes as hidden_sizes and depths, "
            f"got {len(folds)}, {len(widths)} and {len(depths)}"
        )
    tower = "model.audio_tower"
    shapes: Shapes = {
        f"{tower}.norm.weight": (widths[-1],),
        f"{tower}.post_proj_norm.weight": (decoder_width,),
        **_with_bias(f"{tower}.proj", (decoder_width, widths[-1])),
    }
    stages = zip(folds, widths, [1, *widths], depths, strict=False)
    for i, (fold, width, before, depth) in enumerate(stages):
        stage = f"{tower}.layers.{i}"
        shapes |= _with_bias(f"{stage}.patch_embedder.proj", (width, fold * before))
        shapes[f"{stage}.patch_embedder.norm.weight"] = (width,)
        for j in range(depth):
            block = f"{stage}.conv_blocks.{j}"
            shapes |= _with_bias(f"{block}.conv", (width, 1, kernel))  # depthwise
            shapes[f"{block}.norm.weight"] = (width,)
            shapes |= _mlp(f"{block}.mlp", width, int(width * ratio))
    return shapes


def _with_bias(name: str, shape: tuple[int, ...]) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _mlp(name: str, width: int, inner: int) -> Shapes:
    return _with_bias(f"{name}.fc1", (inner, width)) | _with_bias(f"{name}.fc2", (width, inner))


def _incomplete(error: Exception) -> BadCheckpoint:
    return BadCheckpoint(f"config.json: missing or not a number: {error}")
