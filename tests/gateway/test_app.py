"""The app as a whole: paths, methods, keys, the page, and errors in one shape."""

from typing import Any

import httpx
import pytest
from app_rig import fake_engine, http_client, make_app, services_of

from sensorium.core.api import EngineLoad


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v2/models", 404, "not_found"),
        ("GET", "/nothing.js", 404, "not_found"),
        ("GET", "/v1/models/gpt-5", 404, "model_not_found"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("POST", "/", 405, "method_not_allowed"),
        ("POST", "/v1/chat/completions", 400, "invalid_json"),
        ("POST", "/v1/audio/transcriptions", 400, "invalid_content_type"),
    ],
)
async def test_errors_have_one_shape(method: str, path: str, status: int, code: str) -> None:
    async with http_client(make_app()) as client:
        response = await client.request(method, path)
    assert response.status_code == status
    error = error_of(response)
    assert (error["code"], error["type"]) == (code, "invalid_request_error")


async def test_fault_of_ours_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app()

    def fail() -> bytes:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(services_of(app).metrics, "render", fail)
    async with http_client(app) as client:
        response = await client.get("/metrics")
    assert response.status_code == 500
    assert error_of(response)["code"] == "internal_error"
    assert "secret" not in response.text


async def test_models() -> None:
    async with http_client(make_app()) as client:
        listed = (await client.get("/v1/models")).json()
        one = (await client.get("/v1/models/fake")).json()
    assert [card["id"] for card in listed["data"]] == ["default", "fake"]
    assert one == listed["data"][1]
    assert one["max_model_len"] == 2048


async def test_health_and_ready_follow_the_engine() -> None:
    engine = fake_engine()
    app = make_app(engine)
    async with http_client(app) as client:
        engine.info, info = None, engine.info
        assert (await client.get("/health")).json() == {"status": "ok", "engine": "starting"}
        waiting = await client.get("/ready")
        assert waiting.status_code == 503
        assert "warms up" in waiting.json()["waiting_for"]
        assert (await client.get("/v1/models")).json()["data"] == []
        engine.info = info
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["model"]) == (200, "fake")
        engine.load = EngineLoad(
            encoder_lag_s=0.1, encoder_busy=0.5, num_sequences=2, num_free_blocks=9,
            num_waiting_tokens=0,
        )  # fmt: skip
        assert (await client.get("/health")).json()["load"]["sequences"] == 2
        services_of(app).stopping = True
        assert (await client.get("/ready")).status_code == 503


async def test_key_guards_the_model_and_the_metrics_but_not_the_page() -> None:
    async with http_client(make_app(api_key="s3cret"), peer="203.0.113.9") as client:
        for path in ("/v1/models", "/metrics", "/v1/nothing"):
            refused = await client.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert error_of(refused)["code"] == "invalid_api_key"
        for path in ("/", "/health", "/ready"):
            assert (await client.get(path)).status_code == 200
        allowed = await client.get("/v1/models", headers={"Authorization": "Bearer s3cret"})
        assert allowed.status_code == 200


@pytest.mark.parametrize(
    ("peer", "headers"),
    [
        ("203.0.113.9", {}),
        ("127.0.0.1", {"host": "rebound.evil.com"}),
        ("127.0.0.1", {"origin": "https://evil.com"}),
    ],
)
async def test_without_a_key_only_this_machine_is_served(
    peer: str, headers: dict[str, str]
) -> None:
    async with http_client(make_app(), peer=peer) as client:
        for path in ("/", "/v1/models"):
            response = await client.get(path, headers=headers)
            assert (response.status_code, error_of(response)["code"]) == (403, "forbidden")


async def test_page_keeps_to_itself_and_is_cached() -> None:
    async with http_client(make_app()) as client:
        page = await client.get("/")
        again = await client.get("/", headers={"if-none-match": page.headers["etag"]})
        script = await client.get("/main.js")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert (again.status_code, again.content) == (304, b"")
    assert "javascript" in script.headers["content-type"]


@pytest.mark.parametrize(
    "path",
    [
        "/__init__.py",
        "/../gateway/app.py",
        "/%2e%2e/gateway/app.py",
        "/..%2fpyproject.toml",
        "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/.html",
        "/a%00.html",
    ],
)
async def test_nothing_but_the_page_is_served(path: str) -> None:
    async with http_client(make_app()) as client:
        response = await client.get(httpx.URL("http://127.0.0.1", raw_path=path.encode()))
    assert response.status_code == 404


async def test_metrics_are_prometheus_text() -> None:
    async with http_client(make_app()) as client:
        await client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]}
        )
        response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    assert 'sensorium_requests_total{endpoint="chat"} 1.0' in response.text
