"""The prompt grammars we know, by the name a checkpoint's config gives."""

from collections.abc import Mapping

from sensorium.core.models.base import Grammar

# https://github.com/openai/openai-python/blob/v0.28.1/chatml.md
CHATML = Grammar(
    message_open="<|im_start|>{}\n",
    message_close="<|im_end|>\n",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    default_instructions="",
)

GRAMMARS: Mapping[str, Grammar] = {"chatml": CHATML}
