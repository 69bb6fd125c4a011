"""A batch → logits: owns the decoder and its cache, and chooses device, dtype and threads."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sensorium import kernels
from sensorium.core.batch import Batch
from sensorium.core.capture import Capture
from sensorium.core.config import EngineConfig, ModelsConfig
from sensorium.core.errors import CoreError
from sensorium.core.kv_cache import KVCache, num_blocks_in
from sensorium.core.layers.groups import Groups, read_groups
from sensorium.core.layers.linear import Linear, Weights
from sensorium.core.layers.moe import ExpertLinear
from sensorium.core.models import family
from sensorium.core.models.base import Decoder
from sensorium.core.sources import read_config
from sensorium.core.weights import load_weights

DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float8": torch.float8_e4m3fn,
}
"""Types by the names that the configuration uses."""


class Runner:
    """Runs one decoder over one paged cache; not thread-safe."""

    def __init__(
        self, decoder: Decoder, cache: KVCache, *, dtype: torch.dtype | None = None
    ) -> None:
        """Take a decoder whose weights are loaded, and a cache on the same device.

        `dtype` is what the decoder computes in, the cache's unless said.
        """
        self.shape = decoder.shape
        self.dtype = dtype or cache.dtype
        self.cache = cache
        self._decoder = decoder

    @torch.inference_mode()
    def run(self, batch: Batch, capture: Capture | None = None) -> Tensor:
        """Compute all positions of the batch; return logits of its sample indices, [R, V]."""
        x = self._decoder.embed(batch.token_ids)  # [T, D]
        if batch.rows is not None:
            kernels.write_slots(x, batch.slots, batch.rows)
        h = self._decoder.forward(x, batch, self.cache, capture)
        return self._decoder.logits(h[batch.sample_indices])


def load_runner(model_dir: Path, models: ModelsConfig, engine: EngineConfig) -> Runner:
    """Load a checkpoint folder (config.json, model.safetensors) and allocate the cache.

    Sets the process's number of torch threads. Raises ModelNotFound for missing files and
    BadCheckpoint or CoreError for files that can't be served.
    """
    torch.set_num_threads(engine.threads or len(os.sched_getaffinity(0)))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = read_config(model_dir)
    decoder_class = family(str(config.get("model_type")))
    with torch.device("meta"):
        decoder = decoder_class(config)
    if models.residual_dtype == "same":
        decoder.residual_dtype = None
    dtype = _choose_dtype(models, decoder, device)
    load_weights(
        decoder,
        decoder.weight_names(),
        model_dir,
        dtype=dtype,
        device=device,
        others=decoder.other_weight_names(),
    )
    if device.type == "cpu":
        pack(decoder, models.weights, lambda names: read_groups(model_dir, names))
    cache_dtype = DTYPES.get(engine.cache_dtype, dtype)
    cache = new_cache(decoder, engine, dtype=cache_dtype, device=device)
    return Runner(decoder, cache, dtype=dtype)


def new_cache(
    decoder: Decoder, engine: EngineConfig, *, dtype: torch.dtype, device: torch.device
) -> KVCache:
    """Allocate the cache that `engine.cache_mib` pays for; CoreError if that is too little."""
    shape = decoder.shape
    num_blocks = num_blocks_in(
        engine.cache_mib << 20, shape, engine.block_size, dtype, engine.max_sequences
    )
    if num_blocks < 1:
        raise CoreError(f"engine.cache_mib = {engine.cache_mib} doesn't hold one block; raise it")
    return KVCache(
        shape, num_blocks=num_blocks, block_size=engine.block_size, dtype=dtype, device=device
    )


def pack(
    decoder: Any,
    weights: Weights = "same",
    groups_of: Callable[[tuple[str, ...]], Groups | None] = lambda names: None,
) -> None:
    """Bring every matrix of a loaded decoder into a form that the CPU multiplies fast.

    `weights` as in `Linear.pack`; `groups_of` is asked for the groups of a matrix, by the names of
    the checkpoint's tensors that make it.
    """
    names = decoder.weight_names()
    for name, module in decoder.named_modules():
        if isinstance(module, ExpertLinear):
            module.pack(weights)
        elif isinstance(module, Linear):
            wanted = weights in ("auto", "int4")
            module.pack(weights, groups_of(names[f"{name}.weight"]) if wanted else None)


def _choose_dtype(models: ModelsConfig, decoder: nn.Module, device: torch.device) -> torch.dtype:
    """Resolve "auto": bfloat16 on a GPU, else the faster of bfloat16 and float32 here.

    Raises CoreError for weights that can't be computed with in this type or there.
    """
    if models.weights in ("int8", "int4"):
        if device.type != "cpu" or models.dtype not in ("auto", "bfloat16"):
            raise CoreError(
                f'models.weights = "{models.weights}" goes with dtype "bfloat16" on a CPU alone, '
                f'not with "{models.dtype}" on {device.type}; set it to "same"'
            )
        return torch.bfloat16
    if models.dtype != "auto":
        return DTYPES[models.dtype]
    if device.type == "cuda":
        return torch.bfloat16
    return min((torch.bfloat16, torch.float32), key=lambda dtype: _time_layer(decoder, dtype))


@torch.inference_mode()
def _time_layer(decoder: nn.Module, dtype: torch.dtype) -> float:
    """Seconds that one layer's matrices take, for one row and for sixteen; best of twenty."""
    shapes = [
        m.weight.shape for m in decoder.get_submodule("layers.0").modules() if isinstance(m, Linear)
    ]
    linears = []
    for out_features, in_features in shapes:
        linear = Linear(in_features, out_features).to(dtype)
        nn.init.normal_(linear.weight)
        linear.pack()
        linears.append((linear, [torch.ones(n, in_features, dtype=dtype) for n in (1, 16)]))
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        for linear, inputs in linears:
            for x in inputs:
                linear(x)
        best = min(best, time.perf_counter() - begin)
    return best
