"""One conversation as its client sees it: server events in, words on the screen, times measured.

No sockets and no clock; whoever drives it hands in `now` (seconds, any epoch).
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sensorium.gateway.cli.screen import Screen

_HEARD = "conversation.item.input_audio_transcription"


class Dialogue:
    """Follows the events of one `/v1/realtime` session."""

    def __init__(self, screen: Screen) -> None:
        self.num_answers = 0
        self.problems: list[str] = []
        self.sound_began_at: float | None = None
        self._screen = screen
        self._settled: defaultdict[str, str] = defaultdict(str)
        self._open: set[str] = set()
        self._silence_ms = 0
        self._asked_at: float | None = None
        self._first_token_s: float | None = None

    @property
    def is_idle(self) -> bool:
        """True while nobody speaks, nothing is being transcribed and no answer is awaited."""
        return not self._open

    def ask(self, text: str, now: float) -> None:
        """Note that a question was typed."""
        self._open.add("answer")
        self._asked_at = now
        self._screen.heard(text)

    def receive(self, event: Mapping[str, Any], now: float) -> None:
        """Take one server event."""
        match event.get("type"):
            case "session.created" | "session.updated":
                detection = event["session"]["audio"]["input"].get("turn_detection") or {}
                self._silence_ms = int(detection.get("silence_duration_ms") or 0)
            case "input_audio_buffer.speech_started":
                self._open.add("speech")
            case "input_audio_buffer.speech_stopped":
                self._end_turn(event["item_id"], event["audio_end_ms"])
            case str(kind) if kind.startswith(_HEARD):
                self._hear(kind.removeprefix(f"{_HEARD}."), event)
            case str(kind) if kind.startswith("response."):
                self._answer(kind, event, now)
            case "error":
                self._fail(event["error"]["message"])

    def _end_turn(self, item_id: str, audio_end_ms: int) -> None:
        """The end that is told includes the silence that proved it; the speech ended before."""
        self._open.discard("speech")
        self._open |= {"answer", item_id}
        if self.sound_began_at is not None:
            self._asked_at = self.sound_began_at + (audio_end_ms - self._silence_ms) / 1000

    def _hear(self, kind: str, event: Mapping[str, Any]) -> None:
        item_id = event["item_id"]
        match kind:
            case "delta":
                self._settled[item_id] += event["delta"]
                self._screen.hear(self._settled[item_id], "")
            case "partial":
                self._screen.hear(self._settled[item_id], event["text"])
            case "completed":
                self._open.discard(item_id)
                self._screen.heard(event["transcript"])
            case "failed":
                self._open.discard(item_id)
                self._fail(event["error"]["message"])

    def _answer(self, kind: str, event: Mapping[str, Any], now: float) -> None:
        match kind:
            case "response.created":
                self._open.add("answer")
                self._first_token_s = None
            case "response.output_text.delta":
                if self._first_token_s is None and self._asked_at is not None:
                    self._first_token_s = now - self._asked_at
                self._screen.answer(event["delta"])
            case "response.done":
                self._open.discard("answer")
                self._screen.end_answer()
                self._conclude(event["response"])

    def _conclude(self, response: Mapping[str, Any]) -> None:
        self.num_answers += 1
        details = response.get("status_details") or {}
        if response["status"] == "failed":
            self._fail((details.get("error") or {}).get("message") or "the answer failed")
        elif response["status"] != "completed":
            self._screen.note(f"({response['status']}: {details.get('reason')})")
        if self._first_token_s is not None:
            spoken = self.sound_began_at is not None
            since = "the end of speech" if spoken else "the question"
            wait = f", {self._silence_ms} ms of them the silence that ends a turn" if spoken else ""
            self._screen.note(
                f"first token {self._first_token_s * 1000:.0f} ms after {since}{wait}"
            )

    def _fail(self, message: str) -> None:
        self.problems.append(message)
        self._screen.note(f"error: {message}")
