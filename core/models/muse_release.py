"""The configuration of the released Muse Spark Open (816 B parameters), for planning without it.

Only what sizes follow from is exact to the letter; a checkpoint's own config.json is what is run.
"""

from collections.abc import Mapping
from typing import Any

_NUM_LAYERS = 62
_THETA = 500_000.0
_IS_FULL = [(_NUM_LAYERS - 1 - i) % 4 == 0 for i in range(_NUM_LAYERS)]

MUSE_SPARK_OPEN: Mapping[str, Any] = {
    "architectures": ["MuseSparkForConditionalGeneration"],
    "model_type": "muse_spark",
    "image_token_id": 200_092,
    "video_token_id": 200_091,
    "audio_token_id": 200_038,
    "out_hidden_size": 6144,
    "projector_hidden_size": 4096,
    "projector_hidden_act": "gelu",
    "text_config": {
        "model_type": "muse_spark_text",
        "vocab_size": 202_048,
        "hidden_size": 8192,
        "num_hidden_layers": _NUM_LAYERS,
        "num_attention_heads": 128,
        "num_key_value_heads": 16,
        "head_dim": 64,
        "attention_bias": False,
        "layer_types": ["full_attention" if full else "sliding_attention" for full in _IS_FULL],
        "sliding_window": 2048,
        "layer_rope_theta": [0 if full else _THETA for full in _IS_FULL],
        "rope_parameters": {"rope_type": "default", "rope_theta": _THETA},
        "max_position_embeddings": 1 << 20,
        "rms_norm_eps": 1e-5,
        "post_norm_eps": 1e-8,
        "qk_scale_factor": 5.4730064863875,
        "mlp_layer_types": ["sparse"] * _NUM_LAYERS,
        "intermediate_size": 16_384,
        "hidden_act": "silu",
        "num_local_experts": 256,
        "num_experts_per_tok": 8,
        "moe_hidden_size": 4096,
        "moe_intermediate_size": 4096,
        "routed_scaling_factor": 1.0,
        "residual_gate_temperature": 0.3,
        "output_multiplier": 0.1767766952966369,
        "final_logit_softcapping": 20.0,
        "tie_word_embeddings": False,
    },
    "vision_config": {
        "model_type": "muse_spark_vision",
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 50,
        "num_attention_heads": 16,
        "patch_size": 14,
        "patch_temporal": 2,
        "merge_size": 2,
        "pos_emb_height": 32,
        "pos_emb_width": 32,
    },
    "audio_config": {
        "model_type": "muse_spark_audio",
        "patch_sizes": [16, 6, 5, 4],
        "hidden_sizes": [256, 512, 1024, 2048],
        "depths": [2, 2, 2, 2],
        "mlp_ratio": 4,
        "conv_kernel_size": 7,
        "out_hidden_size": 8192,
    },
}
