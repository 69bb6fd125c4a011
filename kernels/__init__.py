"""The public ops: one torch custom op each, over its reference.

PyTorch picks the kernel by the tensors' device, and profilers see each op by name; on the CPU an op
is a plain call. On a GPU a call costs microseconds, so an op is a piece worth fusing.
"""

from sensorium.kernels import cpu, reference, reference_gates, reference_moe
from sensorium.kernels.registration import custom_op

rms_norm = custom_op("rms_norm", reference.rms_norm, mutates_args=(), cpu=cpu.rms_norm)
add_rms_norm = custom_op(
    "add_rms_norm", reference.add_rms_norm, mutates_args=(), cpu=cpu.add_rms_norm
)
silu_mul = custom_op("silu_mul", reference.silu_mul, mutates_args=())
write_slots = custom_op("write_slots", reference.write_slots, mutates_args=("x",))
rope_and_store = custom_op(
    "rope_and_store",
    reference.rope_and_store,
    mutates_args=("kv_cache", "kv_scale"),
)
decode_attention = custom_op("decode_attention", reference.decode_attention, mutates_args=())
prefill_attention = custom_op(
    "prefill_attention", reference.prefill_attention, mutates_args=(), cpu=cpu.prefill_attention
)

route = custom_op("route", reference_moe.route, mutates_args=())
dispatch_experts = custom_op("dispatch_experts", reference_moe.dispatch_experts, mutates_args=())
grouped_matmul = custom_op(
    "grouped_matmul", reference_moe.grouped_matmul, mutates_args=(), cpu=cpu.grouped_matmul
)
combine_experts = custom_op("combine_experts", reference_moe.combine_experts, mutates_args=())

norm_rope_and_store = custom_op(
    "norm_rope_and_store",
    reference_gates.norm_rope_and_store,
    mutates_args=("kv_cache", "kv_scale"),
)
norm_heads_and_gate = custom_op(
    "norm_heads_and_gate", reference_gates.norm_heads_and_gate, mutates_args=()
)
mix_and_norm = custom_op(
    "mix_and_norm", reference_gates.mix_and_norm, mutates_args=(), cpu=cpu.mix_and_norm
)
soft_cap = custom_op("soft_cap", reference_gates.soft_cap, mutates_args=())
