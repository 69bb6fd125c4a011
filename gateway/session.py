"""One client's conversation as a pure state machine: no sockets, no clock, no tasks.

The connection calls `receive` (peer), `advance` (engine, detector), `handle_timer` and
`transport_closed`, and after each call does what `events_to_send`, `requests_to_submit` and
`windows_to_score` ask for. `receive` never raises for what a peer did. Who has the floor is
decided in floor.py, who writes at the tail of the sequence in tail.py; here are the settings, the
items and the session's life, which is OPEN until the transport is lost, an error is fatal, the
server shuts down, or a deadline passes; then it is CLOSED.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from sensorium.core.api import EngineEvent, EngineRequest, ModelInfo, SequenceId
from sensorium.core.text.prompt import Prompt
from sensorium.encoders.media import Samples
from sensorium.gateway.client_events import (
    AppendAudio,
    AppendPicture,
    CancelResponse,
    ClearAudio,
    ClientEvent,
    CommitAudio,
    CreateItem,
    CreateResponse,
    DeleteItem,
    Malformed,
    Nothing,
    RetrieveItem,
    TruncateItem,
    UpdateSession,
)
from sensorium.gateway.configuration import SessionConfig, merged
from sensorium.gateway.conversation import check_size
from sensorium.gateway.errors import GatewayError, PeerError
from sensorium.gateway.floor import Floor
from sensorium.gateway.items import Item, Part, TextPart
from sensorium.gateway.media import FileDecoded, FileRefused, FileToDecode
from sensorium.gateway.outbox import Outbox
from sensorium.gateway.server_events import (
    ErrorRaised,
    ItemAdded,
    ItemDone,
    ItemRetrieved,
    ServerEvent,
    SessionCreated,
    SessionUpdated,
)
from sensorium.gateway.settings import SessionSettings
from sensorium.gateway.tail import Tail
from sensorium.gateway.turns import VoiceActivity

InnerEvent = EngineEvent | VoiceActivity | FileDecoded | FileRefused


def random_id(prefix: str) -> str:
    """Return an id that can't be guessed, at most 32 characters long."""
    return f"{prefix}_{secrets.token_hex(12)}"


class Session:
    """A session over one transport.

    `now` is the caller's monotonic clock in seconds, `clock_unix` the wall clock at its start.
    `live_transcripts`: the client wants words while the user speaks, also unsettled ones;
    `channels`: also what the model writes to others than the user. What is encoded for a `tenant`
    is found again by nobody else.
    """

    def __init__(
        self,
        *,
        model: ModelInfo,
        prompt: Prompt,
        settings: SessionSettings,
        new_sequence_id: Callable[[], SequenceId],
        now: float,
        clock_unix: float,
        live_transcripts: bool = False,
        channels: bool = False,
        tenant: str = "",
        new_id: Callable[[str], str] = random_id,
    ) -> None:
        self.session_id = new_id("sess")
        self.closed = False
        self.config = SessionConfig(instructions=settings.default_instructions)
        self._model = model
        self._prompt = prompt
        self._settings = settings
        self._new_id = new_id
        self._expires = now + settings.max_session_s
        self._expires_unix = int(clock_unix + settings.max_session_s)
        self._last_event = now
        self._outbox = Outbox()
        self._tail = Tail(
            model=model,
            prompt=prompt,
            settings=settings,
            config=self.config,
            outbox=self._outbox,
            new_sequence_id=new_sequence_id,
            new_id=new_id,
            live_transcripts=live_transcripts,
            channels=channels,
            tenant=tenant,
        )
        self._conversation = self._tail.conversation
        self._floor = Floor(
            model=model,
            settings=settings,
            config=self.config,
            outbox=self._outbox,
            tail=self._tail,
            new_id=new_id,
        )
        self._tell(SessionCreated)

    def receive(self, event: ClientEvent, now: float) -> None:
        """Take an event of the peer; a fault of the peer becomes an ErrorRaised."""
        if self.closed:
            return
        self._last_event = now
        try:
            self._dispatch(event, now)
        except GatewayError as error:
            self._raise(error, event.event_id)
        self._tail.pump(now)

    def advance(self, events: Iterable[InnerEvent], now: float) -> None:
        """Take events of the engine, the speech detector and the decoders of files, in order."""
        if self.closed:
            return
        for event in events:
            match event:
                case VoiceActivity():
                    self._floor.hear(event)
                case FileDecoded() | FileRefused():
                    if not self._floor.look(event):
                        self._tail.decoded(event)
                case _:
                    self._tail.advance(event, now)
        self._tail.pump(now)

    def transport_closed(self, now: float) -> None:
        """The peer is gone: give everything back."""
        if not self.closed:
            self.closed = True
            self._tail.close("client_gone", "The client is gone.")

    def handle_timer(self, now: float) -> None:
        """Do what is due; harmless if called early."""
        if self.closed:
            return
        if now >= self._expires:
            message = f"The session reached its {self._settings.max_session_s:g} s limit."
            self.shut_down(now, 1001, "session_expired", message)
        elif now >= self._last_event + self._settings.idle_timeout_s:
            message = f"Nothing was received for {self._settings.idle_timeout_s:g} s."
            self.shut_down(now, 1000, "session_idle", message)
        else:
            self._tail.pump(now)

    def next_deadline(self) -> float | None:
        """Return when `handle_timer` is due next."""
        if self.closed:
            return None
        deadline = min(self._expires, self._last_event + self._settings.idle_timeout_s)
        retry = self._tail.next_deadline()
        return deadline if retry is None else min(deadline, retry)

    def shut_down(self, now: float, code: int, code_name: str, message: str) -> None:
        """End the session with an error event that says why; running responses end first."""
        if self.closed:
            return
        self._tail.close(code_name, message)
        self._outbox.say(
            ErrorRaised(code=code_name, message=message, is_ours=True, close_code=code)
        )
        self.closed = True

    def events_to_send(self) -> list[ServerEvent]:
        """Return the events for the peer since the last call."""
        return self._outbox.take_events()

    def requests_to_submit(self) -> list[EngineRequest]:
        """Return the requests for the engine since the last call."""
        return self._outbox.take_requests()

    def windows_to_score(self) -> list[Samples]:
        """Return windows of 512 samples at 16 kHz; each wants one VoiceActivity, in order."""
        return self._outbox.take_windows()

    def files_to_decode(self) -> list[FileToDecode]:
        """Return files of items; each wants one FileDecoded or FileRefused."""
        return self._outbox.take_files()

    @property
    def frame_counts(self) -> Mapping[str, int]:
        """How many frames of the camera were taken, and why others weren't (camera.py)."""
        return self._floor.frame_counts

    def wants_input(self) -> bool:
        """Whether the connection should go on reading; False while much waits."""
        return self._floor.wants_input() and self._tail.viewing.wants_input

    def _dispatch(self, event: ClientEvent, now: float) -> None:
        match event:
            case AppendAudio():
                self._floor.append(event.data)
            case AppendPicture():
                self._floor.show(event)
            case CommitAudio():
                self._floor.commit()
            case ClearAudio():
                self._floor.clear()
            case UpdateSession():
                self._update(event)
            case CreateItem():
                self._create_item(event)
            case RetrieveItem():
                item = self._known("retrieve", event.item_id)
                self._outbox.say(ItemRetrieved(item=item))
            case DeleteItem():
                self._known("delete", event.item_id)
                self._tail.context.forget(event.item_id)
            case TruncateItem():
                self._known("truncate", event.item_id)
                raise PeerError(
                    "invalid_value",
                    "Only the sound of an answer can be truncated; answers here are text.",
                    param="item_id",
                )
            case CreateResponse():
                self._tail.respond(event, now)
            case CancelResponse():
                self._tail.cancel(event.response_id)
            case Malformed():
                self._raise(event.error, event.event_id)
            case Nothing():
                pass

    def _update(self, event: UpdateSession) -> None:
        config = merged(self.config, event.changes)
        self._floor.configure(config)
        self._tail.configure(config)
        self.config = config
        self._tell(SessionUpdated)

    def _tell(self, kind: type[SessionCreated] | type[SessionUpdated]) -> None:
        self._outbox.say(
            kind(
                session_id=self.session_id,
                model=self._model.name,
                expires_at=self._expires_unix,
                config=self.config,
            )
        )

    def _create_item(self, event: CreateItem) -> None:
        item = replace(event.item, item_id=event.item.item_id or self._new_id("item"))
        check_size(item, self._prompt, self._tail.max_item_positions)
        self._tail.viewing.check(item)
        bare = replace(item, content=tuple(_without_data(part) for part in item.content))
        previous = self._conversation.insert(bare, event.previous_item_id)
        self._outbox.say(ItemAdded(item=bare, previous_item_id=previous))
        self._floor.hear_item(item)
        if not self._tail.viewing.begin(item, event.event_id, self.config.input_format):
            self._outbox.say(ItemDone(item=bare, previous_item_id=previous))
        self._tail.context.drop_excess_items()

    def _known(self, verb: str, item_id: str) -> Item:
        if item_id not in self._conversation:
            raise PeerError(
                f"item_{verb}_invalid_item_id",
                f"There is no item '{item_id}' in this conversation.",
                param="item_id",
            )
        return self._conversation[item_id]

    def _raise(self, error: GatewayError, event_id: str | None) -> None:
        self._outbox.say(
            ErrorRaised(
                code=error.code,
                message=error.message,
                param=error.param,
                event_id=event_id,
                is_ours=not isinstance(error, PeerError),
                close_code=error.close_code,
            )
        )
        if error.close_code is not None:
            self._tail.close(error.code, error.message)
            self.closed = True


def _without_data(part: Part) -> Part:
    return part if isinstance(part, TextPart) else replace(part, data=None)
