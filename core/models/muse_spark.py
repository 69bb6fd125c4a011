"""The Muse Spark decoder: hybrid attention and a latent mixture of experts.

Every branch is normed at its beginning and its end, and weighed against the residual stream channel
by channel. The stream is in float32 unless said otherwise, whatever the matrices are in.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensorium import kernels
from sensorium.core.batch import Batch, Context
from sensorium.core.capture import EMBEDS, Capture
from sensorium.core.kv_cache import KVCache, LayerKV
from sensorium.core.layers.layer import Layer
from sensorium.core.layers.linear import Linear
from sensorium.core.layers.mlp import GatedMLP
from sensorium.core.layers.moe import LatentMoE, Observer, Router
from sensorium.core.layers.muse_attention import Angles, Frequencies, GatedAttention
from sensorium.core.layers.norm_scale import NormScale
from sensorium.core.layers.residual import GatedResidual
from sensorium.core.models.muse_config import MuseSparkConfig
from sensorium.core.models.muse_towers import audio_shapes, vision_shapes


class MuseSparkLayer(Layer):
    """Attention and feed-forward; a norm before each belongs to whoever ends the branch before."""

    def __init__(self, config: MuseSparkConfig, index: int) -> None:
        """Leave the weights to be loaded."""
        super().__init__()
        shape = config.shape
        self.attention_norm = NormScale(shape.width, config.eps, offset=1)
        self.attention = GatedAttention(
            shape.width,
            config.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            q_factor=config.q_factor,
            eps=config.eps,
        )
        self.attention_residual = GatedResidual(shape.width, config.gate_temperature)
        self.feed_norm = NormScale(shape.width, config.eps, offset=1)
        self.feed = (
            GatedMLP(shape.width, config.inner_width) if config.dense[index] else _experts(config)
        )
        self.feed_end_norm = NormScale(shape.width, config.post_eps, offset=1)
        self.feed_residual = GatedResidual(shape.width, config.gate_temperature)
        self._rotary = config.rotary[index]
        self._post_eps = config.post_eps

    def forward(
        self,
        normed: Tensor,
        residual: Tensor,
        angles: Angles,
        context: Context,
        kv: LayerKV,
        following: NormScale,
        observe: Observer | None,
    ) -> tuple[Tensor, Tensor]:
        """Take and return (the normed residual stream, the stream itself), [T, D] each.

        `following` is the norm of what comes after this layer.
        """
        branch = self.attention(normed, angles if self._rotary else None, context, kv)
        normed, residual = self.attention_residual(
            residual,
            branch,
            branch_scale=None,
            branch_eps=self._post_eps,
            following=self.feed_norm,
        )
        if isinstance(self.feed, LatentMoE):
            branch = self.feed(normed, observe)
        else:
            branch = self.feed(normed)
        return self.feed_residual(
            residual,
            branch,
            branch_scale=self.feed_end_norm.scale,
            branch_eps=self._post_eps,
            following=following,
        )


class MuseSpark(nn.Module):
    """The decoder; fits `models.base.Decoder`."""

    def __init__(
        self, config: Mapping[str, Any], *, residual_dtype: torch.dtype | None = torch.float32
    ) -> None:
        """Build from the parsed config.json, weights to be loaded. Raises BadCheckpoint.

        `residual_dtype` is the type of the residual stream; None: that of the matrices.
        """
        super().__init__()
        self.config = MuseSparkConfig.from_json(config)
        self._encoder_names = frozenset(
            name
            for section, shapes in _ENCODERS.items()
            if config.get(section) is not None
            for name in shapes(config)
        )
        self.shape = shape = self.config.shape
        self.residual_dtype = residual_dtype
        self.embedding = nn.Parameter(
            torch.empty(shape.vocab_size, shape.width), requires_grad=False
        )
        self.layers = nn.ModuleList(MuseSparkLayer(self.config, i) for i in range(shape.num_layers))
        self.norm = NormScale(shape.width, self.config.eps, offset=0)
        self.head = Linear(shape.width, shape.vocab_size)
        self._frequencies = Frequencies(shape.head_dim, self.config.rope_theta)

    def embed(self, token_ids: Tensor) -> Tensor:
        """[T] → [T, D]: the start of the residual stream, normed without a scale."""
        rows = F.embedding(token_ids, self.embedding)
        rows = rows.to(self.residual_dtype or rows.dtype)
        return F.rms_norm(rows, (self.shape.width,), None, self.config.eps)

    def forward(
        self, x: Tensor, batch: Batch, cache: KVCache, capture: Capture | None = None
    ) -> Tensor:
        """[T, D] → [T, D], after the final norm; writes this step's keys and values."""
        angles = self._frequencies.at(batch.positions)
        layers = [layer for layer in self.layers if isinstance(layer, MuseSparkLayer)]
        following = [layer.attention_norm for layer in layers[1:]] + [self.norm]
        residual = x
        normed = layers[0].attention_norm(x).to(self.embedding.dtype)
        if capture is not None:
            capture.residual(EMBEDS, x)
        for index, layer in enumerate(layers):
            normed, residual = layer(
                normed,
                residual,
                angles,
                batch.contexts[cache.group_of(index)],
                cache.layer(index),
                following[index],
                capture and _observer(capture, index),
            )
            if capture is not None:
                capture.residual(index, residual)
        return normed

    def logits(self, h: Tensor) -> Tensor:
        """[R, D] → [R, V], in float32 and between -cap and cap."""
        config = self.config
        return kernels.soft_cap(self.head(h), config.output_multiplier, config.logit_cap)

    def weight_names(self) -> dict[str, tuple[str, ...]]:
        """Our parameter → the checkpoint's tensors, concatenated along the first axis."""
        names: dict[str, tuple[str, ...]] = {
            "embedding": ("model.language_model.embed_tokens.weight",),
            "norm.weight": ("model.language_model.norm.weight",),
            "head.weight": ("lm_head.weight",),
        }
        for i, dense in enumerate(self.config.dense):
            theirs = f"model.language_model.layers.{i}."
            for ours, parts in (_LAYER_NAMES | (_DENSE_NAMES if dense else _MOE_NAMES)).items():
                names[f"layers.{i}.{ours}"] = tuple(theirs + part for part in parts)
        return names

    def other_weight_names(self) -> frozenset[str]:
        """Tensors of the encoders that config.json names: the checkpoint must hold them too."""
        return self._encoder_names


def _experts(config: MuseSparkConfig) -> LatentMoE:
    width = config.shape.width
    router = Router(
        width,
        config.num_experts,
        config.num_chosen,
        multiplier=config.output_multiplier,
        scaling=config.routed_scaling,
    )
    return LatentMoE(
        router,
        width=width,
        num_experts=config.num_experts,
        expert_width=config.expert_width,
        inner_width=config.expert_inner_width,
        eps=config.eps,
        post_eps=config.post_eps,
    )


def _observer(capture: Capture, index: int) -> Observer:
    return lambda logits, expert_ids: capture.router(index, logits, expert_ids)


_ENCODERS = {"vision_config": vision_shapes, "audio_config": audio_shapes}

_LAYER_NAMES = {
    "attention_norm.weight": ("input_layernorm.weight",),
    "attention.qkv_gate.weight": (
        "self_attn.q_proj.weight",
        "self_attn.k_proj.weight",
        "self_attn.v_proj.weight",
        "self_attn.gate_proj.weight",
    ),
    "attention.out.weight": ("self_attn.o_proj.weight",),
    "attention_residual.gate": ("post_attention_residual_gate.gate",),
    "feed_norm.weight": ("pre_feedforward_layernorm.weight",),
    "feed_end_norm.weight": ("post_feedforward_layernorm.weight",),
    "feed_residual.gate": ("post_feedforward_residual_gate.gate",),
}

_DENSE_NAMES = {
    "feed.gate_up.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "feed.down.weight": ("mlp.down_proj.weight",),
}

_MOE_NAMES = {
    "feed.router.weight": ("mlp.gate.weight",),
    "feed.router.bias": ("mlp.gate.e_score_correction_bias",),
    "feed.enter.weight": ("mlp.pre_expert_proj.weight",),
    "feed.enter_norm.weight": ("mlp.pre_expert_norm.weight",),
    "feed.gate_up.weight": ("mlp.experts.gate_up_proj",),
    "feed.down.weight": ("mlp.experts.down_proj",),
    "feed.expert_norm.weight": ("mlp.experts.post_expert_norm.weight",),
    "feed.leave.weight": ("mlp.post_expert_proj.weight",),
}
