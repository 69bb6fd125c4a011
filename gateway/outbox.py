"""What a session wants done: events, requests to the engine, windows to score, files to decode."""

from collections.abc import Iterable
from itertools import count

from sensorium.core.api import EngineRequest
from sensorium.encoders.media import Samples
from sensorium.gateway.media import FileToDecode
from sensorium.gateway.server_events import ServerEvent


class Outbox:
    """Four queues in order, drained by the connection after each call of the session.

    `file_numbers` are the names of files that are decoded, each taken once.
    """

    def __init__(self) -> None:
        self._events: list[ServerEvent] = []
        self._requests: list[EngineRequest] = []
        self._windows: list[Samples] = []
        self._files: list[FileToDecode] = []
        self.file_numbers = count(1)

    def say(self, *events: ServerEvent) -> None:
        """Queue events for the peer."""
        self._events.extend(events)

    def ask(self, *requests: EngineRequest) -> None:
        """Queue requests for the engine."""
        self._requests.extend(requests)

    def score(self, windows: Iterable[Samples]) -> None:
        """Queue windows for the voice-activity detector."""
        self._windows.extend(windows)

    def decode(self, file: FileToDecode) -> None:
        """Queue a file to be decoded."""
        self._files.append(file)

    def take_events(self) -> list[ServerEvent]:
        """Return and forget the queued events."""
        events, self._events = self._events, []
        return events

    def take_requests(self) -> list[EngineRequest]:
        """Return and forget the queued requests."""
        requests, self._requests = self._requests, []
        return requests

    def take_windows(self) -> list[Samples]:
        """Return and forget the queued windows."""
        windows, self._windows = self._windows, []
        return windows

    def take_files(self) -> list[FileToDecode]:
        """Return and forget the queued files."""
        files, self._files = self._files, []
        return files
