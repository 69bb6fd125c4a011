"""What Muse's system message says of tools, effort and recipients, where no template says it."""

import json

from sensorium.core.text.atem import write_call
from sensorium.core.text.history import ToolCall
from sensorium.core.text.tools import Tool, ToolSet

EFFORTS = ("low", "medium", "high", "xhigh")
DEFAULT_EFFORT = "xhigh"
_LABEL = "Reasoning strength"


def system_text(instructions: str, tools: ToolSet, effort: str, today: str) -> str:
    """Return the body of the system message; `today` is a date, as its default line says it."""
    given = instructions.replace("Reasoning effort", _LABEL)
    parts = [given or f"You are a helpful AI assistant.\nCurrent date: {today}."]
    if _LABEL not in given:
        parts.append(f"{_LABEL}: {effort}.")
    if tools:
        parts.append(_section(tools))
    recipients = ["self", *(f"{namespace}.*" for namespace in tools.namespaces), "user"]
    quoted = ", ".join(f'"{recipient}"' for recipient in recipients)
    parts.append(f"# Valid recipients: {quoted}.")
    return "\n\n".join(parts)


def _section(tools: ToolSet) -> str:
    lines = [
        "# Tools",
        "",
        "To use a tool, address a message to its name and write the call as its body: one",
        "parameter a line, texts as they are, lists and objects as JSON. The tools, by namespace:",
        "",
    ]
    lines += [
        json.dumps({"name": name, "description": text}, ensure_ascii=False)
        for name, text in tools.namespaces.items()
    ]
    lines += [json.dumps(tool.declaration()["function"], ensure_ascii=False) for tool in tools]
    first = next(iter(tools))
    return "\n".join([*lines, "", f"A call of {first.name} reads:", write_call(_example(first))])


def _example(tool: Tool) -> ToolCall:
    properties = tool.parameters.get("properties", {})
    return ToolCall(name=tool.name, arguments=dict.fromkeys(properties, "value"))
