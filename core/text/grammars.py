"""The prompt grammars we know, the families whose checkpoints use them, and marks of media."""

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaMarks:
    """Ids around one medium's rows: `start`, `placeholder` once per row, `end`.

    `separator` stands between the groups of a video, each behind its time in words.
    """

    start: int
    placeholder: int
    end: int
    separator: int | None = None
