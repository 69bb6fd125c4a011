"""One response of the model, from `ResponseCreated` to `ResponseDone`: all opened is closed.

The order is REALTIME's 7.1, and 7.6 and 7.7 when it ends early.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from sensorium.core.api import Usage
from sensorium.core.text import channels
from sensorium.gateway.items import Item, TextPart
from sensorium.gateway.server_events import (
    ChannelDelta,
    ChannelDone,
    ItemAdded,
    ItemDone,
    OutputItemAdded,
    OutputItemDone,
    OutputPartAdded,
    OutputPartDone,
    OutputTextDelta,
    OutputTextDone,
    Response,
    ResponseCreated,
    ResponseDone,
    ResponseUsage,
    ServerEvent,
)

Status = Literal["completed", "cancelled", "incomplete", "failed"]


class Reply:
    """State of one response. Methods return the events that a step of it causes.

    `in_conversation`: its item belongs to the conversation, so item events are told.
    `shows_channels`: the peer asked for what the model writes to others than the user.
    """

    def __init__(
        self,
        *,
        response_id: str,
        item_id: str,
        conversation_id: str | None,
        previous_item_id: str | None,
        max_output_tokens: int | None,
        metadata: Mapping[str, str] | None,
        text_stream: channels.ChannelStream,
        shows_channels: bool = False,
    ) -> None:
        self.response_id = response_id
        self.in_conversation = conversation_id is not None
        self.text = ""
        self._item = Item(item_id=item_id, role="assistant", content=(), status="in_progress")
        self._previous_item_id = previous_item_id
        self._stream = text_stream
        self._shows_channels = shows_channels
        self._response = Response(
            response_id=response_id,
            status="in_progress",
            conversation_id=conversation_id,
            max_output_tokens=max_output_tokens,
            metadata=metadata,
        )

    @property
    def item(self) -> Item:
        """The answer as an item of the conversation, as it stands."""
        return self._item

    def note_encoders(self, names: Mapping[str, str]) -> None:
        """Name in the metadata what put pictures into words; the client's own keys win."""
        metadata = {**names, **(self._response.metadata or {})}
        if names:
            self._response = replace(self._response, metadata=metadata)

    def begin(self) -> list[ServerEvent]:
        """Announce the response, its item and its empty part."""
        return [
            ResponseCreated(response=self._response),
            OutputItemAdded(response_id=self.response_id, output_index=0, item=self._item),
            *self._conversation_event(ItemAdded),
            OutputPartAdded(
                response_id=self.response_id, item_id=self._item.item_id, output_index=0
            ),
        ]

    def write(self, token_ids: tuple[int, ...]) -> list[ServerEvent]:
        """Add generated tokens; tells the text that they complete."""
        return self._said(self._stream.push(token_ids))

    def end(
        self,
        status: Status,
        *,
        reason: str | None = None,
        error: tuple[str, str] | None = None,
        usage: ResponseUsage | None = None,
    ) -> list[ServerEvent]:
        """Close everything that is open, with the text so far."""
        events = self._said(self._stream.finish(cut=status != "completed"))
        self._item = replace(
            self._item,
            status="completed" if status == "completed" else "incomplete",
            content=(TextPart(text=self.text),),
        )
        self._response = replace(
            self._response,
            status=status,
            reason=reason,
            error=error,
            output=(self._item,),
            usage=usage or _NOTHING,
        )
        response_id, item_id, text = self.response_id, self._item.item_id, self.text
        return [
            *events,
            OutputTextDone(response_id=response_id, item_id=item_id, output_index=0, text=text),
            OutputPartDone(response_id=response_id, item_id=item_id, output_index=0, text=text),
            *self._conversation_event(ItemDone),
            OutputItemDone(response_id=self.response_id, output_index=0, item=self._item),
            ResponseDone(response=self._response),
        ]

    def _said(self, written: Iterable[channels.ChannelEvent]) -> list[ServerEvent]:
        """Tell what the model wrote: its answer to the peer, the rest to who asked for it."""
        events: list[ServerEvent] = []
        for event in written:
            match event:
                case channels.ChannelDelta(channel="user", text=text):
                    self.text += text
                    events.append(
                        OutputTextDelta(
                            response_id=self.response_id,
                            item_id=self._item.item_id,
                            output_index=0,
                            text=text,
                        )
                    )
                case channels.ChannelDelta() | channels.MessageEnded() if not self._shows_channels:
                    pass
                case channels.ChannelDelta(channel=channel, text=text):
                    events.append(
                        ChannelDelta(response_id=self.response_id, channel=channel, text=text)
                    )
                case channels.MessageEnded(channel=channel, end=end):
                    events.append(
                        ChannelDone(response_id=self.response_id, channel=channel, end=end)
                    )
        return events

    def _conversation_event(self, kind: type[ItemAdded] | type[ItemDone]) -> list[ServerEvent]:
        if not self.in_conversation:
            return []
        return [kind(item=self._item, previous_item_id=self._previous_item_id)]


_NOTHING = ResponseUsage(
    input_text_tokens=0,
    input_audio_tokens=0,
    input_image_tokens=0,
    cached_tokens=0,
    output_tokens=0,
)


def usage_of(usage: Usage, audio_tokens: int, image_tokens: int) -> ResponseUsage:
    """Return the counts told to the peer; so many of the prompt came from sound and pictures."""
    audio = min(audio_tokens, usage.num_prompt_tokens)
    image = min(image_tokens, usage.num_prompt_tokens - audio)
    return ResponseUsage(
        input_text_tokens=usage.num_prompt_tokens - audio - image,
        input_audio_tokens=audio,
        input_image_tokens=image,
        cached_tokens=usage.num_prompt_tokens - usage.num_uncached_tokens,
        output_tokens=usage.num_output_tokens,
    )
