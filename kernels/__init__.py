"""The public ops: one torch custom op each, over its reference.

PyTorch picks the kernel by the tensors' device, and profilers see each op by name. A call costs
about 3.5 µs on a CPU, so an op is a piece worth fusing, not one operation.
"""

from torch.library import custom_op

from sensorium.kernels import reference

rms_norm = custom_op("sensorium::rms_norm", reference.rms_norm, mutates_args=())
add_rms_norm = custom_op("sensorium::add_rms_norm", reference.add_rms_norm, mutates_args=())
silu_mul = custom_op("sensorium::silu_mul", reference.silu_mul, mutates_args=())
rope_and_store = custom_op(
    "sensorium::rope_and_store", reference.rope_and_store, mutates_args=("k_cache", "v_cache")
)
decode_attention = custom_op(
    "sensorium::decode_attention", reference.decode_attention, mutates_args=()
)
prefill_attention = custom_op(
    "sensorium::prefill_attention", reference.prefill_attention, mutates_args=()
)
