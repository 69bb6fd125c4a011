"""Who gets in: addresses, names, origins, keys and places."""

import pytest
from fakes import FakeEngine

from sensorium.core.api import EngineLoad
from sensorium.gateway.admission import Admission, bearer_key, is_loopback
from sensorium.gateway.errors import CapacityError, PeerError
from sensorium.gateway.metrics import Metrics
from sensorium.gateway.settings import GatewaySettings

LOCAL = {"host": "127.0.0.1:8000"}


def admission(
    key: str | None = None, *, engine: FakeEngine | None = None, **settings: object
) -> Admission:
    engine = engine or FakeEngine()
    gateway = GatewaySettings(**settings)  # type: ignore[arg-type] # values of one test each
    return Admission(engine=engine, metrics=Metrics(engine), settings=gateway, key=key)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("app.localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("localhost.evil.com", False),
        ("127.0.0.1.evil.com", False),
        ("", False),
    ],
)
def test_loopback_names(host: str, local: bool) -> None:
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("10.0.0.5", LOCAL),
        (None, LOCAL),
        ("127.0.0.1", {}),
        ("127.0.0.1", {"host": "evil.com"}),
        ("127.0.0.1", {**LOCAL, "origin": "https://evil.com"}),
        ("127.0.0.1", {**LOCAL, "origin": "null"}),
        ("127.0.0.1", {**LOCAL, "origin": "http://[broken"}),
    ],
)
def test_without_a_key_strangers_are_refused(peer: str | None, headers: dict[str, str]) -> None:
    with pytest.raises(PeerError) as refused:
        admission().check_peer(peer, headers)
    assert refused.value.code == "forbidden"


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1:8000", None])
def test_without_a_key_local_pages_and_programs_are_served(origin: str | None) -> None:
    headers = LOCAL if origin is None else {**LOCAL, "origin": origin}
    admission().check_peer("::1", headers)


def test_listed_origin_is_served() -> None:
    door = admission(allowed_origins=("https://example.org",))
    door.check_peer("127.0.0.1", {**LOCAL, "origin": "https://example.org"})
    with pytest.raises(PeerError):
        door.check_peer("10.0.0.5", {**LOCAL, "origin": "https://example.org"})


def test_with_a_key_anyone_who_has_it_is_served() -> None:
    door = admission("s3cret")
    door.check_peer("203.0.113.9", {"host": "evil.com", "origin": "https://evil.com"})
    door.check_key("s3cret")
    for wrong in (None, "", "s3cre", "s3cret ", "schlüssel", "\udcff"):
        with pytest.raises(PeerError) as refused:
            door.check_key(wrong)
        assert refused.value.code == "invalid_api_key"
        assert refused.value.close_code == 3000
        assert not wrong or wrong not in refused.value.message.split()


def test_keys_are_found_in_both_headers() -> None:
    assert bearer_key({"authorization": "Bearer abc"}) == "abc"
    assert bearer_key({"authorization": "bearer  abc "}) == "abc"
    assert bearer_key({"api-key": "abc"}) == "abc"
    assert bearer_key({"authorization": "Basic abc"}) is None
    assert bearer_key({}) is None


def test_places_are_counted_and_given_back() -> None:
    door = admission(max_sessions=2)
    with door.session_place():
        with door.session_place():
            with pytest.raises(CapacityError) as refused, door.session_place():
                pass
            assert (refused.value.code, refused.value.close_code) == ("server_busy", 1013)
        with door.session_place():
            pass


def test_capacity_is_the_engines_unless_set() -> None:
    door = admission()
    places = [door.session_place() for _ in range(9)]
    for place in places[:8]:
        place.__enter__()
    with pytest.raises(CapacityError, match="All 8 places"):
        places[8].__enter__()


def test_lagging_encoder_refuses_new_sessions() -> None:
    engine = FakeEngine()
    engine.load = EngineLoad(
        encoder_lag_s=3.0, encoder_busy=1, num_sequences=1, num_free_blocks=1, num_waiting_tokens=0
    )
    with pytest.raises(CapacityError, match="behind"), admission(engine=engine).session_place():
        pass


def test_nobody_is_admitted_before_the_engine_is_ready() -> None:
    engine = FakeEngine()
    engine.info = None
    door = admission(engine=engine)
    with pytest.raises(CapacityError, match="starting"), door.session_place():
        pass
    with pytest.raises(CapacityError, match="starting"), door.request_place("chat"):
        pass


def test_requests_have_places_of_their_own() -> None:
    door = admission(max_requests=1)
    with door.request_place("chat"):
        with pytest.raises(CapacityError), door.request_place("chat"):
            pass
        with door.session_place():
            pass
    with door.request_place("chat"):
        pass
