"""What a Muse checkpoint says about its vision tower, and about what goes into it.

`VitConfig` is from config.json, `VisionSettings` from the preprocessing files beside it.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECTION = "vision_config"

_LANCZOS = 1
_TIME_FORMAT = re.compile(r"[^{}]{0,40}\{timestamp(:\.\df)?\}[^{}]{0,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class VitConfig:
    """Sizes of the tower and of what joins it to the decoder.

    `table_side` is the side of the learned table of positions, and of the windows of attention, in
    patches. `windowed` says of each layer whether it attends within windows only.
    """

    width: int
    inner_width: int
    num_heads: int
    windowed: tuple[bool, ...]
    eps: float
    theta: float
    patch_px: int
    frames_per_group: int
    merge: int
    table_side: int
    projected_width: int
    decoder_width: int
    decoder_eps: float

    @property
    def head_width(self) -> int:
        """Channels of a head: half of them turn with the column, half with the row."""
        return self.width // self.num_heads

    @property
    def cell_px(self) -> int:
        """Side of what becomes one row: `merge` × `merge` patches."""
        return self.patch_px * self.merge

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "VitConfig":
        """Read the parsed config.json. Raises ValueError for what is missing or unknown."""
        try:
            vision, text = config[SECTION], config["text_config"]
            rope = vision.get("rope_parameters") or {"rope_type": "axial", "rope_theta": 1e4}
            found = cls(
                width=int(vision["hidden_size"]),
                inner_width=int(vision["intermediate_size"]),
                num_heads=int(vision["num_attention_heads"]),
                windowed=_windowed(vision),
                eps=float(vision.get("layer_norm_eps", 1e-5)),
                theta=float(rope["rope_theta"]),
                patch_px=int(vision["patch_size"]),
                frames_per_group=int(vision["patch_temporal"]),
                merge=int(vision["merge_size"]),
                table_side=int(vision["pos_emb_height"]),
                projected_width=int(config["projector_hidden_size"]),
                decoder_width=int(text["hidden_size"]),
                decoder_eps=float(text.get("rms_norm_eps", 1e-5)),
            )
            known = {
                "pos_emb_width": (vision["pos_emb_width"], found.table_side),
                "hidden_act": (vision.get("hidden_act", "gelu"), "gelu"),
                "projector_hidden_act": (config.get("projector_hidden_act", "gelu"), "gelu"),
                "rope_type": (rope["rope_type"], "axial"),
                "hidden_size modulo 4 · num_attention_heads": (
                    found.width % (4 * found.num_heads),
                    0,
                ),
            }
        except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
            raise ValueError(f"config.json, {SECTION}: missing or no number: {error}") from error
        for name, (value, wanted) in known.items():
            if value != wanted:
                raise ValueError(f"config.json, {SECTION}: {name} must be {wanted}, got {value!r}")
        return found


def _windowed(vision: Mapping[str, Any]) -> tuple[bool, ...]:
    """Every fourth layer and the last see everything, unless the file has a list."""
    num_layers = int(vision["num_hidden_layers"])
    kinds = vision.get("layer_types") or [
        "full_attention" if i % 4 == 3 or i == num_layers - 1 else "window_attention"
        for i in range(num_layers)
    ]
    unknown = set(kinds) - {"full_attention", "window_attention"}
    if unknown or len(kinds) != num_layers:
        raise ValueError(f"layer_types of {num_layers} layers: {len(kinds)}, {sorted(unknown)}")
    return tuple(kind == "window_attention" for kind in kinds)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionSettings:
    """How media is prepared for the tower.

    A picture becomes at most `image_cells` rows, a group of video frames at most `video_cells`. Of
    a recorded video at most `max_frames` frames are taken, `fps` a second; before a group's rows
    stands `time_format`, filled in with its seconds as `timestamp`.
    The values here are transformers' class defaults; Spark's own file is known to have others.
    """

    image_cells: int = 4096
    video_cells: int = 144
    max_frames: int = 96
    fps: float = 2.0
    time_format: str = "Time: {timestamp:.1f}s"

    @classmethod
    def read(cls, folder: Path, config: VitConfig) -> "VisionSettings":
        """Read a checkpoint's folder: the sections of processor_config.json, else older files.

        What isn't said keeps its default. Raises ValueError for unusable values, and for a
        preparation that isn't the one implemented here.
        """
        nested = _json(folder / "processor_config.json")
        older = {"image_processor": "preprocessor_config.json"}
        older["video_processor"] = "video_preprocessor_config.json"
        image, video = (
            section if isinstance(section, dict) else _json(folder / older[name])
            for name, section in ((name, nested.get(name)) for name in older)
        )
        for section in (image, video):
            _refuse_others(section, config)
        keys = {
            "image_cells": (image, "max_image_tokens"),
            "video_cells": (video, "max_video_frame_tokens"),
            "max_frames": (video, "num_frames"),
            "fps": (video, "fps"),
            "time_format": (video, "frame_timestamp_format"),
        }
        said = {name: section[key] for name, (section, key) in keys.items() if key in section}
        settings = cls(**said)
        settings._check()
        return settings

    def _check(self) -> None:
        for name in ("image_cells", "video_cells", "max_frames"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"preprocessing: {name} must be a whole number ≥ 1, got {value!r}")
        if not isinstance(self.fps, int | float) or not 0 < self.fps < math.inf:
            raise ValueError(f"preprocessing: fps must be a positive number, got {self.fps!r}")
        text = self.time_format
        if not isinstance(text, str) or not _TIME_FORMAT.fullmatch(text):
            raise ValueError(
                "preprocessing: frame_timestamp_format must be short text with one "
                f"{{timestamp:.1f}} in it, got {text!r}"
            )


def _refuse_others(section: Mapping[str, Any], config: VitConfig) -> None:
    """Refuse a section that scales, normalises or cuts pictures in another way than we do."""
    ours = {
        "do_resize": True,
        "resample": _LANCZOS,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "patch_size": config.patch_px,
        "temporal_patch_size": config.frames_per_group,
        "merge_size": config.merge,
    }
    for name, wanted in ours.items():
        if section.get(name, wanted) != wanted:
            raise ValueError(
                f"preprocessing: {name} is {section[name]!r}, only {wanted!r} is implemented"
            )


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a file, an empty one if there is no file."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} isn't JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold an object, got {type(found).__name__}")
    return found
