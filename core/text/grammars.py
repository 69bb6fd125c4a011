"""The prompt grammars we know, by name, and the families whose checkpoints use them."""

from collections.abc import Mapping

from sensorium.core.models.base import Grammar

# https://github.com/openai/openai-python/blob/v0.28.1/chatml.md
CHATML = Grammar(
    message_open="<|im_start|>{}\n",
    message_close="<|im_end|>\n",
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    default_instructions="",
)

# A reply may have several messages, each to a recipient; <|eom|> ends one, and no turn.
MUSE = Grammar(
    frame="muse",
    message_open="<|start|>{}<|message|>",
    message_close="<|eot|>",
    stop_tokens=("<|end_of_text|>", "<|eot|>"),
    default_instructions="",
    bare_assistant="reasoning",
)

GRAMMARS: Mapping[str, Grammar] = {"chatml": CHATML, "muse": MUSE}
GRAMMAR_OF_FAMILY: Mapping[str, str] = {"muse_spark": "muse"}
"""`model_type` of a config.json → grammar, where the family has but one."""
