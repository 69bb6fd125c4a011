"""Muse's replies, parted by control tokens: header, `<|message|>`, body, `<|eom|>` or `<|eot|>`.

Only token ids part messages, so that no text, however it reads, opens or ends one. The one thing
read from text is a header, ` to=NAME`, and models leave marks out: what a body's end might be of
it is held back until the next ids decide.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sensorium.core.text.atem import CallReader
from sensorium.core.text.channels import ChannelDelta, ChannelEvent, End, MessageBegan, MessageEnded
from sensorium.core.text.tokenizer import Detokenizer, Tokenizer
from sensorium.core.text.tools import NO_TOOLS, ToolSet

_HEADER = re.compile(r"(?P<role>\w*)( to=(?P<to>[\w.\-]{1,260}))?\s*", re.ASCII)
_HEADER_SO_FAR = re.compile(r"( |\Z)(t|\Z)(o|\Z)(=|\Z)[\w.\-]{0,260}\s*", re.ASCII)
_TAIL = re.compile(r" (t(o(=[\w.\-]{0,260}\s{0,2})?)?)?\Z", re.ASCII)
_MAX_HEADER_CHARS = 300
_CHANNELS = ("user", "self", "commentary", "developer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The ids of the control tokens that part messages."""

    start: int
    message: int
    eom: int
    eot: int


class MuseStream:
    """A Muse reply that begins after `<|start|>assistant`, inside the header of its first message.

    Where a header belongs and ordinary text stands, that is a message without one, which is
    reasoning or answer by the grammar's `bare_assistant`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        marks: Marks,
        *,
        bare_assistant: Literal["reasoning", "answer"],
        tools: ToolSet = NO_TOOLS,
    ) -> None:
        self._tokenizer = tokenizer
        self._marks = marks
        self._bare = "self" if bare_assistant == "reasoning" else "user"
        self._tools = tools
        self._detokenizer = Detokenizer(tokenizer)
        self._state: Literal["header", "body", "skip"] = "header"
        self._after_start = False  # the header names its role
        self._held = ""  # a header, or the end of a body that may be one
        self._channel = ""
        self._call: CallReader | None = None
        self._events: list[ChannelEvent] = []

    def push(self, ids: Sequence[int]) -> list[ChannelEvent]:
        """Add generated ids; returns what they complete, never half a character."""
        run: list[int] = []
        controls = (self._marks.start, self._marks.message, self._marks.eom, self._marks.eot)
        for token_id in ids:
            if token_id in controls:
                self._text(self._detokenizer.push(run))
                run = []
                self._control(token_id)
            else:
                run.append(token_id)
        self._text(self._detokenizer.push(run))
        return self._taken()

    def finish(self, *, cut: bool = False) -> list[ChannelEvent]:
        """End the reply: at a stop token, or `cut` off by a limit or an interruption."""
        self._text(self._detokenizer.finish())
        if self._state == "body":
            if cut and " to=" in self._held:  # the header of a message that never came
                self._held = ""
            self._end("cut" if cut else "eot")
        self._state, self._held = "skip", ""
        return self._taken()

    def _taken(self) -> list[ChannelEvent]:
        events, self._events = self._events, []
        return events

    def _control(self, token_id: int) -> None:
        self._text(self._detokenizer.finish())
        match self._state, token_id:
            case "header", self._marks.message:
                self._begin(self._held)
            case "body", self._marks.message:
                self._message_in_body()
            case "body", _:
                # A message may lack its end: the next one's start is as good as <|eom|>.
                self._end("eot" if token_id == self._marks.eot else "eom")
                self._expect_header(token_id)
            case _, self._marks.message:
                pass
            case _:
                self._expect_header(token_id)

    def _expect_header(self, token_id: int) -> None:
        self._state, self._held = "header", ""
        self._after_start = token_id == self._marks.start

    def _message_in_body(self) -> None:
        """Models go from reasoning to a call without <|eom|>: the end of the body is a header."""
        if " to=" in self._held:
            header, self._held = self._held, ""
            self._end("eom")
            self._begin(header)
        elif self._call is not None:
            # Nothing may stand inside a call: its name ends here, and it is refused.
            self._end("cut", broken=True)
            self._state = "skip"

    def _text(self, text: str) -> None:
        if not text or self._state == "skip":
            return
        self._held += text
        if self._state == "header":
            self._header_text()
        if self._state == "body":
            tail = _TAIL.search(self._held)
            end = tail.start() if tail else len(self._held)
            text, self._held = self._held[:end], self._held[end:]
            self._delta(text)

    def _header_text(self) -> None:
        if self._after_start:
            if len(self._held) > _MAX_HEADER_CHARS:
                self._state, self._held = "skip", ""
        elif not _HEADER_SO_FAR.fullmatch(self._held):
            self._open(self._bare, "")

    def _begin(self, header: str) -> None:
        self._held = ""
        found = _HEADER.fullmatch(header)
        role = "assistant" if self._after_start else ""
        if found is None or found["role"] not in (role, ""):
            self._open("unknown", header)
        else:
            self._open(found["to"] or self._bare, header)

    def _open(self, channel: str, header: str) -> None:
        self._state, self._channel = "body", channel
        is_call = channel not in (*_CHANNELS, "unknown")
        self._call = CallReader(self._tools, channel) if is_call else None
        self._events.append(MessageBegan(channel=channel, header=header.strip()))

    def _delta(self, text: str) -> None:
        if not text:
            return
        if self._call is not None:
            self._call.push(text)
        last = self._events[-1] if self._events else None
        if isinstance(last, ChannelDelta):
            text = last.text + text
            self._events.pop()
        self._events.append(ChannelDelta(channel=self._channel, text=text))

    def _end(self, end: End, *, broken: bool = False) -> None:
        text, self._held = self._held, ""
        self._delta(text)
        if self._call is not None:
            self._events += self._call.finish(cut=end == "cut", broken=broken)
            self._call = None
        self._events.append(MessageEnded(channel=self._channel, end=end))
