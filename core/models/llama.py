"""The dense Llama family (Touvron et al., 2023; Hugging Face's `LlamaForCausalLM` layout)."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sensorium.core.batch import Batch, Context
from sensorium.core.capture import Capture
from sensorium.core.kv_cache import KVCache, LayerKV
from sensorium.core.layers.attention import Attention
from sensorium.core.layers.layer import Layer
from sensorium.core.layers.linear import Linear
from sensorium.core.layers.mlp import GatedMLP
from sensorium.core.layers.norm import RMSNorm
from sensorium.core.layers.rotary import Rotary
from sensorium.core.models.llama_config import LlamaConfig


class LlamaLayer(Layer):
    """Attention and feed-forward, each normed before and added after."""

    def __init__(self, config: LlamaConfig) -> None:
        """Leave the weights to be loaded."""
        super().__init__()
        shape = config.shape
        self.attention_norm = RMSNorm(shape.width, config.norm_eps)
        self.attention = Attention(
            shape.width, config.num_heads, shape.num_kv_heads, shape.head_dim
        )
        self.mlp_norm = RMSNorm(shape.width, config.norm_eps)
        self.mlp = GatedMLP(shape.width, config.inner_width)

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None,
        rotary: tuple[Tensor, Tensor],
        context: Context,
        kv: LayerKV,
    ) -> tuple[Tensor, Tensor]:
        """Take and return (last sub-layer's output, residual stream without it), [T, D] each."""
        if residual is None:
            normed, residual = self.attention_norm(x), x
        else:
            normed, residual = self.attention_norm.add(x, residual)
        x = self.attention(normed, rotary, context, kv)
        normed, residual = self.mlp_norm.add(x, residual)
        return self.mlp(normed), residual


class Llama(nn.Module):
    """The decoder; fits `models.base.Decoder`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Build from the parsed config.json, weights to be loaded. Raises BadCheckpoint."""
        super().__init__()
        self.config = LlamaConfig.from_json(config)
        self.shape = shape = self.config.shape
        self.embedding = nn.Parameter(
            torch.empty(shape.vocab_size, shape.width), requires_grad=False
        )
        self.layers = nn.ModuleList(LlamaLayer(self.config) for _ in range(shape.num_layers))
        self.norm = RMSNorm(shape.width, self.config.norm_eps)
        self.head = Linear(shape.width, shape.vocab_size)
        self._rotary = Rotary(shape.head_dim, shape.max_positions, self.config.rope_theta)

    def embed(self, token_ids: Tensor) -> Tensor:
        """[T] → [T, D]."""
        return F.embedding(token_ids, self.embedding)

    def forward(
        self, x: Tensor, batch: Batch, cache: KVCache, capture: Capture | None = None
    ) -> Tensor:
        """[T, D] → [T, D], before the final norm; writes this step's keys and values."""
        rotary = self._rotary.at(batch.positions, x.dtype)
        residual = None
        if capture is not None:
            capture.residual(-1, x)
        for index, layer in enumerate(self.layers):
            context = batch.contexts[cache.group_of(index)]
            x, residual = layer(x, residual, rotary, context, cache.layer(index))
            if capture is not None:
                capture.residual(index, x + residual)
        return x if residual is None else x + residual

    def logits(self, h: Tensor) -> Tensor:
        """[R, D] → [R, V]."""
        return self.head(self.norm(h))

    def weight_names(self) -> dict[str, tuple[str, ...]]:
        """Our parameter → the checkpoint's tensors, concatenated along the first axis."""
        embedding = "model.embed_tokens.weight"
        names: dict[str, tuple[str, ...]] = {
            "embedding": (embedding,),
            "norm.weight": ("model.norm.weight",),
            "head.weight": (embedding if self.config.tied_head else "lm_head.weight",),
        }
        for i in range(self.shape.num_layers):
            theirs = f"model.layers.{i}."
            for ours, parts in _LAYER_NAMES.items():
                names[f"layers.{i}.{ours}.weight"] = tuple(f"{theirs}{p}.weight" for p in parts)
        return names

    def other_weight_names(self) -> frozenset[str]:
        """The checkpoint holds nothing beside the decoder."""
        return frozenset()


_LAYER_NAMES = {
    "attention_norm": ("input_layernorm",),
    "attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.out": ("self_attn.o_proj",),
    "mlp_norm": ("post_attention_layernorm",),
    "mlp.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down": ("mlp.down_proj",),
}
