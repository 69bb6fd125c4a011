"""The backlog of a slow peer: order kept, deltas merged, bytes counted."""

from sensorium.gateway.backlog import Backlog, num_bytes
from sensorium.gateway.configuration import SessionConfig
from sensorium.gateway.items import Item, TextPart
from sensorium.gateway.server_events import (
    AudioCleared,
    ChannelDelta,
    ChannelDone,
    ItemDone,
    OutputTextDelta,
    ServerEvent,
    SessionUpdated,
    TranscriptDelta,
    TranscriptPartial,
)


def delta(text: str, response_id: str = "r1") -> OutputTextDelta:
    return OutputTextDelta(response_id=response_id, item_id="i1", output_index=0, text=text)


def drained(*events: ServerEvent) -> list[ServerEvent]:
    backlog = Backlog()
    backlog.extend(events)
    taken = []
    while backlog:
        taken.append(backlog.pop())
    assert backlog.num_bytes == 0
    return taken


def test_deltas_of_one_part_merge() -> None:
    assert drained(delta("a"), delta("b"), delta("c")) == [delta("abc")]


def test_deltas_of_different_parts_stay_apart() -> None:
    events: list[ServerEvent] = [delta("a"), delta("b", "r2"), delta("c")]
    assert drained(*events) == events


def test_nothing_merges_across_another_event() -> None:
    events: list[ServerEvent] = [delta("a"), AudioCleared(), delta("b")]
    assert drained(*events) == events


def test_transcript_deltas_merge_and_partials_replace() -> None:
    events: list[ServerEvent] = [
        TranscriptDelta(item_id="i", text=" a"),
        TranscriptDelta(item_id="i", text=" b"),
        TranscriptPartial(item_id="i", text=" c"),
        TranscriptPartial(item_id="i", text=" d"),
        TranscriptPartial(item_id="j", text=" e"),
    ]
    assert drained(*events) == [
        TranscriptDelta(item_id="i", text=" a b"),
        TranscriptPartial(item_id="i", text=" d"),
        TranscriptPartial(item_id="j", text=" e"),
    ]


def thought(text: str, channel: str = "self", response_id: str = "r1") -> ChannelDelta:
    return ChannelDelta(response_id=response_id, channel=channel, text=text)


def test_deltas_of_one_channel_merge_and_others_stay_apart() -> None:
    ended = ChannelDone(response_id="r1", channel="self", end="eom")
    others: list[ServerEvent] = [
        thought("c", "commentary"),
        thought("d", "commentary", "r2"),
        delta("e"),
    ]
    events = [thought("a"), thought("b"), *others, thought("f"), ended, thought("g")]
    assert drained(*events) == [thought("ab"), *others, thought("f"), ended, thought("g")]


def test_size_follows_the_text_that_an_event_carries() -> None:
    def item(text: str) -> Item:
        return Item(item_id="i", role="user", content=(TextPart(text=text),))

    def updated(text: str) -> SessionUpdated:
        config = SessionConfig(instructions=text)
        return SessionUpdated(session_id="s", model="m", expires_at=0, config=config)

    long = "x" * 1000
    for small, large in (
        (delta(""), delta(long)),
        (thought(""), thought(long)),
        (
            ItemDone(item=item(""), previous_item_id=None),
            ItemDone(item=item(long), previous_item_id=None),
        ),
        (updated(""), updated(long)),
    ):
        assert num_bytes(large) - num_bytes(small) >= 1000


def test_clear_forgets_events_and_bytes() -> None:
    backlog = Backlog()
    backlog.extend([delta("a")])
    backlog.clear()
    assert not backlog
    assert backlog.num_bytes == 0
