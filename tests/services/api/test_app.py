import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from loomlog.connectors.errors import Transient
from loomlog.services.api import request_parsing
from loomlog.services.api.app import build_app
from loomlog.services.api.route import Route
from loomlog.services.api.routes import ROUTES
from tests.services.api.serving import MAX_BODY, Served, Wire, service_of
from tests.services.application.owner import WAIT_S
from tests.services.application.world import ACME, READER

PUBLIC = {"/healthz", "/readyz", "/v1/openapi.json", "/v1/openapi.yaml", "/v1/docs", "/ui/login-config.json"}


def filled(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "1", path)


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_application_serves_the_table_and_nothing_else(tmp_path: Path) -> None:
    app = build_app(service_of(None, tmp_path))
    served_routes = {
        (method, route.path) for route in app.routes if isinstance(route, APIRoute) for method in route.methods
    }
    assert served_routes == {(route.method, route.path) for route in ROUTES}
    assert all(isinstance(route, APIRoute) for route in app.routes)


def test_every_route_is_looked_up(tmp_path: Path) -> None:
    app = build_app(service_of(None, tmp_path))
    missing = [
        route.path for route in ROUTES if app.lookup.find(route.method, re.sub(r"{.*?}", "x", route.path)) is None
    ]
    assert not missing


@pytest.mark.parametrize("path", sorted(PUBLIC))
async def test_public_routes_answer_without_a_token(here: Served, path: str) -> None:
    assert (await here.client(None).get(path)).status_code == 200


async def test_without_a_token_the_answer_says_how_to_send_one(here: Served) -> None:
    answer = await here.client(None).get("/v1/runs")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_who_lacks_the_scope_is_told_which(here: Served) -> None:
    answer = await here.client(READER).post("/v1/runs", json={})
    assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
    assert answer.headers["www-authenticate"].endswith('scope="runs:create"')


@pytest.mark.parametrize("header", ["Basic shared-token", "Bearer", "Bearer wrong", "shared-token", "Bearer a b"])
async def test_a_malformed_or_unknown_token_is_401(here: Served, header: str) -> None:
    answer = await here.client(None).get("/v1/_me", headers={"Authorization": header})
    assert answer.status_code == 401


async def test_the_scheme_may_be_in_any_case(here: Served) -> None:
    answer = await here.client(None).get("/v1/_me", headers={"Authorization": "bEaReR acme-token"})
    assert answer.json()["subject"] == "acme-op"


# --- what is not there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/nothing", "/v1/runs/", "/v1/runs%3Fx", "/v2/runs", "/docs", "/openapi.json", "/redoc"]
)
async def test_an_unknown_route_is_a_404_in_the_one_shape(here: Served, path: str) -> None:
    answer = await here.client().get(path)
    assert answer.status_code == 404
    assert answer.json()["code"] == "route_not_found"


async def test_another_method_is_a_405_that_names_all_that_work(here: Served) -> None:
    answer = await here.client().delete("/v1/runs")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST"
    assert answer.json()["code"] == "method_not_allowed"


async def test_before_it_is_ready_every_route_says_so_and_health_works(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    wire = Wire(build_app(service), "GET", "/v1/runs").begin()
    assert '"code":"starting"' in await wire.done()
    assert (wire.status, wire.headers["retry-after"]) == (503, "1")
    for path, status in (("/healthz", 200), ("/readyz", 503)):
        wire = Wire(build_app(service), "GET", path, caller=None).begin()
        await wire.done()
        assert wire.status == status


# --- bodies ----------------------------------------------------------------------------------------------------------


async def test_the_caller_is_checked_before_a_byte_of_the_body_is_read(here: Served) -> None:
    wire = Wire(here.app, "POST", "/v1/runs", caller=None).chunks([b"x"] * 3, endless=True).begin()
    await wire.done()
    assert wire.status == 401
    assert len(wire._pieces) == 3, "nothing was taken"


async def test_a_body_is_refused_while_it_comes_in_and_not_after(here: Served) -> None:
    pieces = [b"x" * 50_000] * 20
    wire = Wire(here.app, "POST", "/v1/runs").chunks(pieces, endless=True).begin()
    await wire.until("payload_too_large")
    assert wire.status == 413
    assert wire.headers["connection"] == "close"
    assert f'"request_id":"{wire.headers["x-request-id"]}"' in wire.body.decode().replace(" ", "")
    wire.leave()
    await wire.done()


async def test_a_body_that_says_it_is_too_large_is_refused_unread(here: Served) -> None:
    wire = Wire(here.app, "POST", "/v1/runs").header("content-length", str(MAX_BODY + 1)).chunks([b"x"], endless=True)
    wire.begin()
    await wire.until("payload_too_large")
    assert wire.status == 413
    wire.leave()
    await wire.done()


async def test_a_client_that_leaves_while_it_sends_gets_nothing_and_breaks_nothing(here: Served) -> None:
    wire = Wire(here.app, "POST", "/v1/runs").chunks([b'{"agent":'], endless=True).begin()
    wire.leave()
    assert await wire.done() == ""
    assert here.world.commands() == []


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_that_is_not_json_by_its_type_is_415(here: Served, content_type: str) -> None:
    answer = await here.client().post("/v1/runs", content=b'{"agent":"soaker"}', headers={"content-type": content_type})
    assert answer.status_code == 415
    assert answer.json()["code"] == "unsupported_media_type"


@pytest.mark.parametrize(
    "content_type", ["application/json", "Application/JSON; charset=utf-8", "application/vnd.x+json"]
)
async def test_json_by_any_name_is_json(here: Served, content_type: str) -> None:
    body = b'{"agent":"soaker","prompt":"go"}'
    answer = await here.client().post("/v1/runs", content=body, headers={"content-type": content_type})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"{}x", b"\xff\xfe", b'{"agent":1}', b'{"agent":"\\ud800"}', b"[" * 10_000],
)
async def test_a_body_that_makes_no_sense_is_a_clear_400(here: Served, body: bytes) -> None:
    answer = await here.client().post("/v1/runs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["code"] == "bad_request"
    assert answer.json()["error"]


async def test_mistakes_are_named_by_their_place_and_values_are_not_repeated(here: Served) -> None:
    body = {
        "agent": 5,
        "segments": [{"role": "robot", "content": [{"type": "trusted-text", "text": 7}]}],
        "user_credentials": {"name": ["hunter2"]},
    }
    answer = await here.client().post("/v1/runs", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400
    for sentence in (
        "agent must be a string",
        "segments[0].role must be 'system' or 'user'",
        "segments[0].content[0].text must be a string",
        "user_credentials.name must be a string",
    ):
        assert sentence in error
    assert "hunter2" not in error


# --- the unexpected --------------------------------------------------------------------------------------------------


async def test_a_bug_is_a_500_that_tells_nothing(here: Served) -> None:
    def broken() -> None:
        raise RuntimeError("secret internals")

    here.world.layer.queries.agent = broken  # type: ignore[assignment,method-assign]
    answer = await here.client().get("/v1/agents/a_1")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert "secret" not in answer.text


@pytest.mark.parametrize("path", ["/v1/agents/a_1", "/v1/_state"])
async def test_who_is_cut_off_by_a_stop_is_told_so(here: Served, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    asked = asyncio.Event()

    async def waits(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(here.world.layer.queries, "agent", waits)
    monkeypatch.setattr(here.world.layer.wide_pauses, "_live_runs", waits)
    cut_off = asyncio.create_task(here.client().get(path))
    async with asyncio.timeout(WAIT_S):
        await asked.wait()
        here.service.is_stopping = True
        cut_off.cancel()
        answer = await cut_off
    assert (answer.status_code, answer.json()["code"]) == (503, "stopping")
    assert "Idempotency-Key" in answer.json()["error"]
    assert answer.headers["retry-after"] == "1"


async def test_a_cancellation_without_a_stop_is_one(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def waits(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(here.world.layer.queries, "agent", waits)
    cut_off = asyncio.create_task(here.client().get("/v1/agents/a_1"))
    async with asyncio.timeout(WAIT_S):
        await asked.wait()
    cut_off.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut_off


async def test_what_a_request_meets_while_everything_is_closed_is_no_bug(here: Served) -> None:
    here.world.layer.queries.agent = None  # type: ignore[assignment,method-assign]
    here.service.is_stopping = True
    answer = await here.client().get("/v1/agents/a_1")
    assert (answer.status_code, answer.json()["code"]) == (503, "stopping")


async def test_something_outside_that_is_away_is_a_503(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Transient("password=hunter2 at 10.0.0.1", kind="timeout")

    monkeypatch.setattr(here.world.layer.queries, "agent", away)
    answer = await here.client().get("/v1/agents/a_1")
    assert (answer.status_code, answer.json()["code"]) == (503, "outside_unavailable")
    assert answer.headers["retry-after"] == "1"
    assert "hunter2" not in answer.text


async def test_answers_are_counted_by_route_and_status(here: Served) -> None:
    await here.client(ACME).get("/v1/agents/nobody")
    await here.client(ACME).get("/v1/agents/nobody2")
    text = (await here.client().get("/metrics")).text
    assert 'loomlog_http_requests_total{method="GET",route="/v1/agents/{agent_id}",status="404"} 2.0' in text


# --- names, ids and time limits of a request --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/runs?statsu=running", "unknown query parameter 'statsu'; did you mean status?"),
        ("/v1/_me?verbose=1", "unknown query parameter 'verbose'; known are position"),
        ("/healthz?position=loom.run.events/0:0", "unknown query parameter 'position'; it takes none"),
    ],
)
async def test_an_unknown_query_parameter_is_refused_with_the_nearest_name(
    here: Served, path: str, expected: str
) -> None:
    answer = await here.client().get(path)
    assert (answer.status_code, answer.json()["error"]) == (400, expected)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"promt": "hi"}, 'unknown field "promt"; did you mean prompt?'),
        ({"max_tokens": 5}, 'unknown field "max_tokens"; it belongs to the definition of the agent'),
        (
            {"segments": [{"role": "user", "contents": []}]},
            'unknown field "contents" in segments[0]; did you mean content?',
        ),
        ({"metadata": 7}, "metadata must be an object"),
        ({"agent_id": "a" * 500}, "agent_id"),
    ],
)
async def test_a_wrong_field_is_named_with_what_is_expected(here: Served, fields: Any, expected: str) -> None:
    answer = await here.client().post("/v1/runs", json={"agent": "soaker", "prompt": "go", **fields})
    assert answer.status_code == 400
    assert expected in answer.json()["error"]
    assert "permitted" not in answer.json()["error"]


async def test_every_answer_has_the_id_of_its_request(here: Served) -> None:
    client = here.client()
    generated = await client.get("/v1/_me")
    sent = await client.get("/v1/runs/r_none", headers={"X-Request-Id": "trace-7"})
    unfit = await client.get("/v1/nowhere", headers={"X-Request-Id": "a b"})
    stream = await client.post("/v1/runs", json={"agent": "soaker", "prompt": "go"}, headers={"X-Request-Id": "s-1"})
    assert generated.headers["x-request-id"].startswith("q_")
    assert (sent.headers["x-request-id"], sent.json()["request_id"]) == ("trace-7", "trace-7")
    assert unfit.json()["request_id"] == unfit.headers["x-request-id"] != "a b"
    assert stream.headers["x-request-id"] == "s-1"


async def test_the_type_of_a_body_that_is_not_json_is_named(here: Served) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = await here.client().post("/v1/runs", content=b"a=b", headers=headers)
    assert answer.status_code == 415
    assert "got 'application/x-www-form-urlencoded'; with curl add -H" in answer.json()["error"]


async def test_a_body_that_is_too_large_names_the_setting(here: Served) -> None:
    answer = await here.client().post("/v1/runs", json={"agent": "soaker", "prompt": "x" * 300_000})
    assert (answer.status_code, "LOOMLOG_MAX_REQUEST_BYTES" in answer.json()["error"]) == (413, True)


async def test_a_body_that_stalls_ends_with_408(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_parsing, "BODY_WAIT_S", 0.02)

    async def stalled() -> AsyncIterator[bytes]:
        yield b'{"agent":'
        await asyncio.Event().wait()

    answer = await here.client().post("/v1/runs", content=stalled(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (408, "request_timeout")
