"""A conversation → the ids of its prompt, if they fit into the model's context."""

import json
from collections.abc import Sequence

from sensorium.core.errors import CoreError
from sensorium.core.text.history import Entry, Said, ToolCall
from sensorium.core.text.prompt import Prompt
from sensorium.core.text.tools import ToolSet
from sensorium.gateway.errors import PeerError

_MAX_CHARS_PER_POSITION = 64
"""Far above what any tokenizer packs into one id: more needn't be tokenised to be refused."""


def prompt_ids(
    prompt: Prompt,
    entries: Sequence[Entry],
    *,
    default_instructions: str | None,
    tools: ToolSet,
    effort: str | None,
    max_positions: int,
) -> tuple[int, ...]:
    """Return the ids of a prompt that leaves room for an answer; raises PeerError.

    A system message that comes first is the instructions; without one they are the default ones.
    `tools` are bounded by whoever made them.
    """
    instructions = default_instructions
    match entries:
        case [Said(role="system", text=text), *rest]:
            instructions, entries = text, rest
    num_chars = sum(map(_num_chars, entries)) + len(instructions or "")
    ids: tuple[int, ...] = ()
    if num_chars <= max_positions * _MAX_CHARS_PER_POSITION:
        try:
            ids = prompt.conversation(
                entries, instructions=instructions, tools=tools, effort=effort
            )
        except CoreError as error:  # a template refuses an order of roles, or a tool's name is none
            raise PeerError(
                "invalid_value",
                f"The model can't be given these messages: {error}.",
                param="messages",
            ) from error
        if len(ids) < max_positions:
            return ids
    count = f"{len(ids)} tokens" if ids else f"{num_chars} characters"
    what = "messages and tools" if tools else "messages"
    raise PeerError(
        "context_length_exceeded",
        f"The {what} have {count}; the model's context is {max_positions} tokens with the answer.",
        param="messages",
    )


def _num_chars(entry: Entry) -> int:
    if isinstance(entry, Said):
        return len(entry.text)
    if isinstance(entry, ToolCall):
        return len(json.dumps(dict(entry.arguments)))
    return len(entry.output)
