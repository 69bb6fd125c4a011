"""Metrics: what a session did is counted, what the engine reports is shown."""

from fakes import FakeEngine
from prometheus_client.parser import text_string_to_metric_families

from sensorium.core.api import EngineLoad
from sensorium.gateway.client_events import AppendAudio
from sensorium.gateway.metrics import Metrics, SessionMeter
from sensorium.gateway.server_events import OutputTextDelta, Response, ResponseCreated, ResponseDone


def values(metrics: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.render().decode())
    samples = [sample for family in families for sample in family.samples]
    return {f"{s.name}{'|'.join(s.labels.values())}": s.value for s in samples}


def test_first_token_is_timed_once_per_response() -> None:
    metrics = Metrics(FakeEngine())
    now = 10.0
    meter = SessionMeter(metrics, clock=lambda: now)
    response = Response(response_id="r", status="completed", conversation_id=None)
    delta = OutputTextDelta(response_id="r", item_id="i", output_index=0, text="a")
    meter.queued(ResponseCreated(response=response))
    now = 10.25
    meter.queued(delta)
    now = 99.0
    meter.queued(delta)
    meter.queued(ResponseDone(response=response))
    seen = values(metrics)
    assert seen["sensorium_first_token_seconds_count"] == 1
    assert seen["sensorium_first_token_seconds_sum"] == 0.25
    assert seen["sensorium_responses_totalcompleted"] == 1
    assert seen["sensorium_events_totalout"] == 4


def test_appended_bytes_are_counted() -> None:
    metrics = Metrics(FakeEngine())
    SessionMeter(metrics).received(AppendAudio(data=bytes(960)))
    assert values(metrics)["sensorium_appended_bytes_total"] == 960


def test_engine_is_read_when_asked() -> None:
    engine = FakeEngine()
    metrics = Metrics(engine)
    assert values(metrics)["sensorium_engine_ready"] == 1
    assert values(metrics)["sensorium_engine_encoder_lag_s"] == 0
    engine.info = None
    engine.load = EngineLoad(
        encoder_lag_s=0.5,
        encoder_busy=0.5,
        num_sequences=3,
        num_free_blocks=7,
        num_waiting_tokens=0,
    )
    seen = values(metrics)
    assert seen["sensorium_engine_ready"] == 0
    assert seen["sensorium_engine_encoder_lag_s"] == 0.5
    assert seen["sensorium_engine_sequences"] == 3


def test_frames_of_a_session_are_counted_by_what_became_of_them() -> None:
    metrics = Metrics(FakeEngine())
    for _ in range(2):
        SessionMeter(metrics).ended({"taken": 3, "dropped": 1})
    seen = values(metrics)
    assert seen["sensorium_camera_frames_totaltaken"] == 6
    assert seen["sensorium_camera_frames_totaldropped"] == 2
