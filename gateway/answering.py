"""Responses of the model: one at a time in the conversation, any number beside it on forks.

A response that changes the head of the prompt, or that stays out of the conversation, runs on a
sequence of its own, recomputed past what it shares with nothing; all others continue the main one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from sensorium.core.api import (
    Generated,
    Interrupt,
    SamplingParams,
    SequenceId,
    SpanId,
    TurnEnded,
)
from sensorium.core.text.prompt import Prompt
from sensorium.gateway.client_events import CreateResponse
from sensorium.gateway.conversation import Conversation, Unit
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.placement import Placement
from sensorium.gateway.reply import Reply, Status, usage_of
from sensorium.gateway.server_events import ResponseUsage


@dataclass(slots=True)
class Run:
    """A response and where it is written. `span` is None while it waits for its sequence."""

    reply: Reply
    request: CreateResponse
    placement: Placement
    is_fork: bool
    max_tokens: int
    since: float
    span: SpanId | None = None
    units: list[Unit] = field(default_factory=list)
    written: list[int] = field(default_factory=list)


class Answering:
    """All responses of a session that aren't done."""

    def __init__(
        self,
        outbox: Outbox,
        conversation: Conversation,
        prompt: Prompt,
        new_sequence_id: Callable[[], SequenceId],
        tenant: str = "",
    ) -> None:
        self._outbox = outbox
        self._conversation = conversation
        self._prompt = prompt
        self._new_sequence_id = new_sequence_id
        self._tenant = tenant
        self._runs: dict[str, Run] = {}
        self._spoken_positions: dict[str, int] = {}

    @property
    def active(self) -> Run | None:
        """The response that writes to the conversation."""
        return next((run for run in self._runs.values() if run.reply.in_conversation), None)

    @property
    def waiting(self) -> list[Run]:
        """Responses that were announced and have no place in the engine yet."""
        return [run for run in self._runs.values() if run.span is None]

    @property
    def all(self) -> list[Run]:
        """All responses that aren't done, oldest first."""
        return list(self._runs.values())

    @property
    def placements(self) -> list[Placement]:
        """The sequences of all forks."""
        return [run.placement for run in self._runs.values() if run.is_fork]

    def get(self, response_id: str) -> Run | None:
        """Return a response that isn't done, None if there is none of that id."""
        return self._runs.get(response_id)

    def note_spoken(self, item_id: str, num_positions: int) -> None:
        """Remember how much of the prompt came from sound (for usage)."""
        self._spoken_positions[item_id] = num_positions

    def announce(self, run: Run) -> None:
        """Tell the peer of a new response; it is started by `start_fork` or `start_on`."""
        self._runs[run.reply.response_id] = run
        self._outbox.say(*run.reply.begin())
        if run.reply.in_conversation:
            self._conversation.insert(run.reply.item, None)

    def new_fork(self) -> Placement:
        """Return a placement of its own for a response."""
        return Placement(self._new_sequence_id, self._outbox.ask, self._tenant)

    def start(self, run: Run, units: list[Unit]) -> None:
        """Bring the run's sequence in sync with `units` and let the model write."""
        run.placement.sync(units)
        run.units = units
        run.written.clear()
        run.reply.note_encoders(
            {
                f"{medium.modality}_encoder": medium.encoder
                for unit in units
                for medium in unit.media
                if medium.modality in ("image", "video") and not medium.gives_rows
            }
        )
        run.span = run.placement.generate(
            self._prompt.open_reply(),
            SamplingParams(
                max_tokens=run.max_tokens, stop_token_ids=tuple(self._prompt.stop_token_ids)
            ),
        )

    def find(self, sequence_id: SequenceId) -> Run | None:
        """Return the run that writes to a sequence now."""
        for run in self._runs.values():
            if run.span is not None and run.placement.sequence_id == sequence_id:
                return run
        return None

    def advance(self, event: Generated | TurnEnded) -> bool:
        """Take the engine's word on a response; returns whether it ended one."""
        run = self.find(event.sequence_id)
        if run is None or run.span != event.span_id:
            return False
        if isinstance(event, Generated):
            run.written += event.token_ids
            self._outbox.say(*run.reply.write(event.token_ids))
            return False
        if event.reason == "interrupted":  # never asked for while the run is in the table
            self.end(run, "failed", error=("interrupted", "The engine ended the response."))
            return True
        media = [medium for unit in run.units for medium in unit.media]
        spoken = sum(self._spoken_positions.get(i, 0) for i in self._conversation.ids)
        heard = sum(m.num_positions for m in media if m.modality == "audio")
        seen = sum(m.num_positions for m in media if m.modality in ("image", "video"))
        usage = usage_of(event.usage, heard + (0 if run.is_fork else spoken), seen)
        if not run.is_fork:
            key = ("item", run.reply.item.item_id)
            run.placement.complete(key, self._prompt.close_message())
        if event.reason == "length":
            self.end(run, "incomplete", reason="max_output_tokens", usage=usage)
        else:
            self.end(run, "completed", usage=usage)
            self._keep(run)
        return True

    def stop(self, run: Run, reason: str) -> None:
        """Cancel a response now: close it for the peer, then stop the engine."""
        sequence_id, span = run.placement.sequence_id, run.span
        self.end(run, "cancelled", reason=reason)
        if not run.is_fork and sequence_id is not None and span is not None:
            self._outbox.ask(Interrupt(sequence_id=sequence_id))

    def end(
        self,
        run: Run,
        status: Status,
        *,
        reason: str | None = None,
        error: tuple[str, str] | None = None,
        usage: ResponseUsage | None = None,
    ) -> None:
        """Close a response for the peer, keep its text in the conversation, free its fork."""
        del self._runs[run.reply.response_id]
        self._outbox.say(*run.reply.end(status, reason=reason, error=error, usage=usage))
        if run.reply.in_conversation and run.reply.item.item_id in self._conversation:
            self._conversation.update(run.reply.item)
        if run.is_fork:
            run.placement.close()

    def _keep(self, run: Run) -> None:
        """A whole answer stays in the main sequence as it is, reasoning included."""
        item_id = run.reply.item.item_id
        if not run.is_fork and item_id in self._conversation:
            ids = (*self._prompt.open_reply(), *run.written, *self._prompt.close_message())
            self._conversation.keep_as_written(item_id, ids)

    def lost(self, run: Run) -> None:
        """The engine dropped the run's sequence before it wrote anything: it waits again."""
        run.span = None
        run.placement.lost()
