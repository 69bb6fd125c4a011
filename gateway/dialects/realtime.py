"""The OpenAI Realtime dialect: JSON text in and out, no I/O and no order of its own."""

from collections.abc import Mapping
from itertools import count
from typing import Any, assert_never, get_args

import msgspec
from msgspec import UNSET

from sensorium.gateway import server_events as events
from sensorium.gateway.client_events import ClientEvent, Malformed
from sensorium.gateway.dialects import realtime_encode as encode
from sensorium.gateway.dialects import realtime_output as output
from sensorium.gateway.dialects import realtime_types as wire
from sensorium.gateway.dialects.realtime_decode import client_event
from sensorium.gateway.dialects.realtime_faults import peer_error, quote
from sensorium.gateway.errors import PeerError
from sensorium.gateway.server_events import ServerEvent


class _Envelope(msgspec.Struct):
    """What is read first, so that an event with a fault in it still has a name."""

    type: Any = UNSET
    event_id: Any = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_Event = wire.AnyEvent | wire.VideoEvent
_EVENTS: Mapping[str, type[_Event]] = {
    str(event.__struct_config__.tag): event for event in get_args(wire.AnyEvent)
}
_EVENTS_WITH_VIDEO: Mapping[str, type[_Event]] = {
    **_EVENTS,
    **{str(event.__struct_config__.tag): event for event in get_args(wire.VideoEvent)},
}
_DECODERS = {
    event: msgspec.json.Decoder(event)
    for event in (*_EVENTS.values(), *_EVENTS_WITH_VIDEO.values())
}


class RealtimeDialect:
    """One connection's view of the protocol: it numbers what it says and recalls `audio.output`.

    `live_transcripts` shows the unsettled words of a transcript as well, as events that the
    protocol doesn't have; strict clients call an unknown event an error. `video` takes the frames
    of a camera, and settings for it, which the protocol doesn't have either.
    """

    def __init__(self, *, live_transcripts: bool, video: bool = False) -> None:
        self._live_transcripts = live_transcripts
        self._video = video
        self._events = _EVENTS_WITH_VIDEO if video else _EVENTS
        self._numbers = count(1)
        self._audio_output: Mapping[str, Any] = encode.OUTPUT_PLACEHOLDER

    def decode(self, message: str | bytes) -> ClientEvent:
        """Return the event in a text frame (str) or binary frame (bytes); never raises for it.

        What can't be read becomes Malformed, with the client's `event_id` if that could be.
        """
        event_id: str | None = None
        try:
            envelope = _open(message)
            event_id = _event_id(envelope)
            return client_event(_event(envelope, message, self._events))
        except PeerError as error:
            # The traceback's frames hold the message, which may be 20 MB.
            return Malformed(error=error.with_traceback(None), event_id=event_id)
        except RecursionError:
            return Malformed(
                error=PeerError("invalid_value", "The event is nested too deeply."),
                event_id=event_id,
            )

    def encode(self, event: ServerEvent) -> str | None:
        """Return the event as JSON text, or None if this client isn't shown it."""
        if isinstance(event, events.TranscriptPartial) and not self._live_transcripts:
            return None
        if isinstance(event, encode.SessionEvent):
            self._audio_output = encode.audio_output(event.config)
        body = {"event_id": f"evt_{next(self._numbers)}", **self._body(event)}
        return msgspec.json.encode(body).decode()

    def _body(self, event: ServerEvent) -> dict[str, Any]:
        match event:
            case events.SessionCreated() | events.SessionUpdated():
                return encode.session_event(event, shows_video=self._video)
            case (
                events.SpeechStarted()
                | events.SpeechStopped()
                | events.AudioCommitted()
                | events.AudioCleared()
            ):
                return encode.audio_event(event)
            case (
                events.ItemAdded()
                | events.ItemDone()
                | events.ItemRetrieved()
                | events.ItemDeleted()
            ):
                return encode.item_event(event)
            case (
                events.TranscriptDelta()
                | events.TranscriptPartial()
                | events.TranscriptCompleted()
                | events.TranscriptFailed()
            ):
                return encode.transcript_event(event)
            case events.ResponseCreated() | events.ResponseDone():
                return output.response_event(event, self._audio_output)
            case (
                events.OutputItemAdded()
                | events.OutputPartAdded()
                | events.OutputTextDelta()
                | events.OutputTextDone()
                | events.OutputPartDone()
                | events.OutputItemDone()
            ):
                return output.output_event(event)
            case events.ChannelDelta() | events.ChannelDone():
                return output.channel_event(event)
            case events.ErrorRaised():
                return encode.error_event(event)
            case _:
                assert_never(event)


def _open(message: str | bytes) -> _Envelope:
    if isinstance(message, bytes):
        raise PeerError("invalid_event", "Binary frames are not taken; send JSON in text frames.")
    try:
        return _ENVELOPE.decode(message)
    except msgspec.ValidationError as fault:
        raise PeerError(
            "invalid_event", f"Not an event: {fault}; send a JSON object with a 'type'."
        ) from None
    except (msgspec.DecodeError, UnicodeError) as fault:
        raise _not_json(fault) from None


def _not_json(fault: Exception) -> PeerError:
    return PeerError("invalid_json", f"Not JSON: {quote(str(fault))}; send one JSON object.")


def _event_id(envelope: _Envelope) -> str | None:
    event_id = envelope.event_id
    if event_id is None:
        return None
    if not isinstance(event_id, str) or len(event_id) > wire.MAX_EVENT_ID_CHARS:
        raise PeerError(
            "invalid_value",
            f"Invalid value for 'event_id'; expected a string of at most "
            f"{wire.MAX_EVENT_ID_CHARS} characters.",
            param="event_id",
        )
    return event_id


def _event(envelope: _Envelope, message: str | bytes, known: Mapping[str, type[_Event]]) -> _Event:
    if not isinstance(envelope.type, str):
        raise PeerError("invalid_event", "The event has no 'type' that is a string.", param="type")
    event = known.get(envelope.type)
    if event is None:
        raise PeerError(
            "invalid_value",
            f"Invalid value for 'type': '{quote(envelope.type)}'; expected {', '.join(known)}.",
            param="type",
        )
    try:
        return _DECODERS[event].decode(message)
    except msgspec.ValidationError as fault:
        raise peer_error(fault, event) from None
    except msgspec.DecodeError as fault:
        raise _not_json(fault) from None
