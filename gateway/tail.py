"""The tail of the main sequence: one writer at a time, the live spoken turn or the active response.

`pump` gives the tail to whoever is next. Committed turns are heard before a response starts; a turn
that is still being spoken makes way for one and is heard again from its beginning. When the engine
is full or gone, everything stays queued and is tried again.
"""

from collections.abc import Callable

from sensorium.core.api import (
    Closed,
    EngineEvent,
    Failed,
    Generated,
    Heard,
    ModelInfo,
    Progress,
    SequenceId,
    SpanClosed,
    TurnEnded,
)
from sensorium.core.text.prompt import Prompt
from sensorium.gateway.answering import Answering, Run
from sensorium.gateway.client_events import CreateResponse
from sensorium.gateway.configuration import SessionConfig
from sensorium.gateway.context import Context, length
from sensorium.gateway.conversation import Conversation
from sensorium.gateway.errors import PeerError
from sensorium.gateway.hearing import Hearing
from sensorium.gateway.media import FileDecoded, FileRefused
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.placement import Placement
from sensorium.gateway.reply import Reply
from sensorium.gateway.settings import SessionSettings
from sensorium.gateway.transcripts import Transcripts
from sensorium.gateway.viewing import Viewing

_RETRY_S = 0.5
"""Pause between two tries while the engine is full or restarting."""
_MAX_WAIT_S = 60.0
"""After so long without an engine a turn or response is given up."""
_MAX_ATTEMPTS = 3
"""A turn that fails the engine this often is given up: it may be what breaks it."""


class Tail:
    """Spoken turns, responses and the main sequence of one session, and their order."""

    def __init__(
        self,
        *,
        model: ModelInfo,
        prompt: Prompt,
        settings: SessionSettings,
        config: SessionConfig,
        outbox: Outbox,
        new_sequence_id: Callable[[], SequenceId],
        new_id: Callable[[str], str],
        live_transcripts: bool,
        channels: bool = False,
        tenant: str = "",
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._settings = settings
        self._outbox = outbox
        self._new_id = new_id
        self._shows_channels = channels
        self._conversation_id = new_id("conv")
        self._main = Placement(new_sequence_id, outbox.ask, tenant)
        self._config = config
        self.conversation = Conversation(prompt)
        self.hearing = Hearing(outbox, self._main, prompt, model=model)
        self.answering = Answering(outbox, self.conversation, prompt, new_sequence_id, tenant)
        self.transcripts = Transcripts(
            outbox, config.transcription, live=live_transcripts, intake=model.intakes.get("audio")
        )
        self.context = Context(
            self.conversation,
            outbox,
            max_positions=model.max_positions,
            max_items=settings.max_items,
            max_media_bytes=settings.max_media_mib << 20,
            in_use=self._items_in_use,
        )
        room = self.max_item_positions
        self.viewing = Viewing(outbox, self.conversation, self.context, model, room)
        self._is_stale = False
        self._answer_soon = False
        self._blocked_until = 0.0

    @property
    def max_item_positions(self) -> int:
        """The longest item that a prompt can hold with room for an answer."""
        return self._model.max_positions - self._answer_reserve() - 64

    def configure(self, config: SessionConfig) -> None:
        """Use other settings from the next turn or response on."""
        self._config = config
        self.transcripts.transcription = config.transcription

    def next_deadline(self) -> float | None:
        """Return when `pump` should be tried again, if it is blocked."""
        wanted = self.hearing.first is not None or self.answering.waiting or self._is_stale
        return self._blocked_until if wanted and self._blocked_until else None

    # --- responses -------------------------------------------------------------------------------

    def respond(self, request: CreateResponse, now: float) -> None:
        """Announce a response; it starts as soon as all committed turns were heard."""
        active = self.answering.active
        if not request.out_of_band and active is not None:
            raise PeerError(
                "conversation_already_has_active_response",
                f"Conversation already has an active response: {active.reply.response_id}. "
                "Wait for its response.done, or cancel it.",
            )
        if request.input is not None:
            self.conversation.units_of("", request.input)  # names an unknown reference now
        other_head = request.instructions not in (None, self._config.instructions)
        is_fork = request.out_of_band or other_head or request.input is not None
        wanted = request.max_output_tokens
        if wanted == 0:
            wanted = self._config.max_output_tokens
        reply = Reply(
            response_id=self._new_id("resp"),
            item_id=self._new_id("item"),
            conversation_id=None if request.out_of_band else self._conversation_id,
            previous_item_id=self.conversation.last_id,
            max_output_tokens=wanted,
            metadata=request.metadata,
            text_stream=self._prompt.stream(),
            shows_channels=self._shows_channels,
        )
        self._answer_soon = self._answer_soon and request.out_of_band
        self.answering.announce(
            Run(
                reply=reply,
                request=request,
                placement=self.answering.new_fork() if is_fork else self._main,
                is_fork=is_fork,
                max_tokens=wanted or self._settings.max_output_tokens,
                since=now,
            )
        )

    def cancel(self, response_id: str | None) -> None:
        """Stop a response, by default the active one; raises PeerError if there is none."""
        run = self.answering.active if response_id is None else self.answering.get(response_id)
        if run is None:
            raise PeerError(
                "response_cancel_not_active",
                "Cancellation failed: no active response found"
                + (f" with id '{response_id}'" if response_id else ""),
                param="response_id" if response_id else None,
            )
        self.answering.stop(run, "client_cancelled")

    def interrupt(self) -> None:
        """The user speaks: stop the active response, and don't start one that was due."""
        self._answer_soon = False
        if (active := self.answering.active) is not None:
            self.answering.stop(active, "turn_detected")

    # --- the engine's word -----------------------------------------------------------------------

    def advance(self, event: EngineEvent, now: float) -> None:
        """Take an event of the engine; stale ones (of dropped spans and sequences) are ignored."""
        match event:
            case Heard() | Progress() | SpanClosed():
                if event.sequence_id == self._main.sequence_id:
                    turn = self.hearing.advance(event)
                    if turn is not None and isinstance(event, Heard):
                        self.transcripts.heard(turn)
                if isinstance(event, SpanClosed):
                    self.viewing.encoded(event, [self._main, *self.answering.placements])
                self._complete()
            case Generated() | TurnEnded():
                self.answering.advance(event)
            case Failed():
                self._failed(event, now)
            case Closed():
                pass

    def pump(self, now: float) -> None:
        """Give the tail to whoever is next, and the encoder what it may have."""
        if now < self._blocked_until:
            return
        self._blocked_until = 0.0
        if self._answer_soon and self.answering.active is None:
            self._answer_soon = False
            self.respond(CreateResponse(), now)
        if not self.hearing.has_committed and not self.viewing.is_busy:
            for run in self.answering.waiting:
                self._start(run)
        active = self.answering.active
        on_main = active is not None and not active.is_fork and active.span is not None
        wants_tail = self.hearing.first is not None and not self.hearing.is_live
        is_ending = self.hearing.is_live and self.hearing.has_committed
        if (wants_tail or (self._is_stale and not is_ending)) and not on_main:
            reserve = self._answer_reserve() + self.hearing.reserve
            if self.hearing.is_live:
                self.hearing.step_aside()
            self._main.sync(self.context.fit(self._config, reserve))
            self._is_stale = False
            if self.hearing.first is not None:
                self.hearing.go_live(self._config.transcription)
        self.hearing.feed()
        if self._complete():
            self.pump(now)

    def decoded(self, event: FileDecoded | FileRefused) -> None:
        """Media are there: have them encoded before anybody asks for an answer.

        A turn that is still being spoken is heard anew behind them.
        """
        self._is_stale |= self.viewing.advance(event)

    def close(self, code: str, message: str) -> None:
        """End every response with an error and give all sequences back."""
        for run in self.answering.all:
            self.answering.end(run, "failed", error=(code, message))
        self._main.close()

    def _start(self, run: Run) -> None:
        reserve = self.context.reserve(run.max_tokens)
        units = self.context.units_for(self._config, run.request, reserve)
        if length(units) > self._model.max_positions - reserve:
            message = (
                f"The conversation is longer than this model's {self._model.max_positions} "
                "positions; delete items or use truncation 'auto'."
            )
            self.answering.end(run, "failed", error=("context_length_exceeded", message))
            return
        if not run.is_fork and self.hearing.is_live:
            self.hearing.step_aside()
        self._is_stale = self._is_stale and run.is_fork
        self.answering.start(run, units)

    def _answer_reserve(self) -> int:
        return self.context.reserve(self._settings.max_output_tokens)

    def _complete(self) -> bool:
        """End the first turn if all of it was encoded; returns whether it was."""
        turn = self.hearing.first
        if turn is None or not turn.is_complete:
            return False
        self.hearing.complete(self.viewing.keep_turn(turn))
        if not self.hearing.gives_rows:
            self.answering.note_spoken(turn.item_id, turn.num_positions)
        self.transcripts.complete(turn, turn.num_samples / self._model.audio_rate_hz)
        has_words = bool(turn.settled.strip())
        was_heard = turn.num_positions > 0 if self.hearing.gives_rows else has_words
        if turn.respond and was_heard:
            detection = self._config.turn_detection
            may_interrupt = detection is not None and detection.interrupt_response
            self._answer_soon = self.hearing.first is None or not may_interrupt
        return True

    def _failed(self, event: Failed, now: float) -> None:
        is_transient = event.code in ("engine_busy", "engine_lost")
        if is_transient:
            self._blocked_until = now + _RETRY_S
        run = self.answering.find(event.sequence_id)
        if run is not None:
            if event.code == "engine_busy" and now - run.since < _MAX_WAIT_S:
                run.span = None
            else:
                self.answering.end(run, "failed", error=(event.code, event.message))
        if event.sequence_id == self._main.sequence_id:
            self._main.lost()
            self._is_stale |= event.code == "engine_busy" and self.conversation.media_bytes > 0
            self._turn_failed(event, now)
        elif run is not None:
            run.placement.lost()
        if event.code == "context_full" and self._config.truncation == "auto":
            self.context.cut_to(self._config, self._model.max_positions // 2)

    def _turn_failed(self, event: Failed, now: float) -> None:
        turn = self.hearing.first
        if turn is None or not turn.is_live:
            return
        self.hearing.lost()
        if event.code == "engine_busy":
            turn.refused_since = turn.refused_since or now
            give_up = now - turn.refused_since > _MAX_WAIT_S
        else:
            turn.num_attempts += 1
            give_up = turn.num_attempts >= _MAX_ATTEMPTS
        if give_up and turn.committed:
            self.hearing.drop(turn)
            self.transcripts.failed(turn, event.code, event.message)

    def _items_in_use(self) -> set[str]:
        items = {turn.item_id for turn in self.hearing.turns} | self.viewing.item_ids
        if (active := self.answering.active) is not None:
            items.add(active.reply.item.item_id)
        return items
