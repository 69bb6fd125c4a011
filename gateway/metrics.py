"""Counters and histograms of one gateway in Prometheus' text format; the one place to name them."""

import time
from collections.abc import Callable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE_LATEST
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sensorium.gateway.client_events import AppendAudio, AppendPicture, ClientEvent
from sensorium.gateway.ports import EnginePort
from sensorium.gateway.server_events import (
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    ServerEvent,
)

_LATENCY_BUCKETS_S = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class Metrics:
    """All metrics of one gateway, in a registry of its own so that several fit in one process."""

    def __init__(self, engine: EnginePort) -> None:
        self.registry = registry = CollectorRegistry()
        self.sessions_open = Gauge(
            "sensorium_sessions_open", "Realtime sessions now open", registry=registry
        )
        self.sessions_refused = Counter(
            "sensorium_sessions_refused", "Refused sessions", ["code"], registry=registry
        )
        self.requests = Counter(
            "sensorium_requests", "HTTP requests to the model", ["endpoint"], registry=registry
        )
        self.events = Counter(
            "sensorium_events", "Session events", ["direction"], registry=registry
        )
        self.appended_bytes = Counter(
            "sensorium_appended_bytes", "Sound and frames received by sessions", registry=registry
        )
        self.camera_frames = Counter(
            "sensorium_camera_frames", "Frames of ended sessions by what became of them",
            ["outcome"], registry=registry,
        )  # fmt: skip
        self.decoded_seconds = Counter(
            "sensorium_decoded_seconds", "Sound decoded from uploaded files", registry=registry
        )
        self.responses = Counter(
            "sensorium_responses", "Responses of sessions by how they ended", ["status"],
            registry=registry,
        )  # fmt: skip
        self.first_token_s = Histogram(
            "sensorium_first_token_seconds", "From response.created to its first text",
            buckets=_LATENCY_BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.sequences_failed = Counter(
            "sensorium_sequences_failed", "Failed sequences; engine_lost means a restart", ["code"],
            registry=registry,
        )  # fmt: skip
        self.slow_clients = Counter(
            "sensorium_slow_clients", "Sessions closed because the client didn't read",
            registry=registry,
        )  # fmt: skip
        self._engine = engine
        self._observe("ready", "1 while the engine serves", lambda: float(engine.info is not None))
        for name, what in (
            ("encoder_lag_s", "Age of the oldest sound that waits for the encoder"),
            ("encoder_busy", "Share of time the encoder works"),
            ("num_sequences", "Sequences in the engine"),
            ("num_free_blocks", "Free cache blocks"),
            ("num_waiting_tokens", "Positions that wait for prefill"),
        ):
            self._observe(name.removeprefix("num_"), what, self._load_reader(name))

    def render(self) -> bytes:
        """Return everything in Prometheus' text exposition format."""
        return generate_latest(self.registry)

    def _observe(self, name: str, what: str, read: Callable[[], float]) -> None:
        gauge = Gauge(f"sensorium_engine_{name}", what, registry=self.registry)
        gauge.set_function(read)

    def _load_reader(self, name: str) -> Callable[[], float]:
        def read() -> float:
            load = self._engine.load
            return float(getattr(load, name)) if load else 0.0

        return read


class SessionMeter:
    """Counts one session's events and times each response from its creation to its first text."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._created_at: dict[str, float] = {}

    def received(self, event: ClientEvent) -> None:
        """Count a client event."""
        self._metrics.events.labels("in").inc()
        if isinstance(event, AppendAudio | AppendPicture):
            self._metrics.appended_bytes.inc(len(event.data))

    def ended(self, frame_counts: Mapping[str, int]) -> None:
        """Count what became of a session's frames."""
        for outcome, count in frame_counts.items():
            self._metrics.camera_frames.labels(outcome).inc(count)

    def queued(self, event: ServerEvent) -> None:
        """Count a server event."""
        self._metrics.events.labels("out").inc()
        match event:
            case ResponseCreated(response=response):
                self._created_at[response.response_id] = self._clock()
            case OutputTextDelta(response_id=response_id) if response_id in self._created_at:
                since = self._created_at.pop(response_id)
                self._metrics.first_token_s.observe(self._clock() - since)
            case ResponseDone(response=response):
                self._created_at.pop(response.response_id, None)
                self._metrics.responses.labels(response.status).inc()
            case _:
                pass
