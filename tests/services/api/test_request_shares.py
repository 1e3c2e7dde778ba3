"""What requests take of the process, through the whole application: refused by share, and always given back."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from loomlog.services.api import request_shares
from loomlog.services.api.request_shares import RequestShares, Takes
from loomlog.services.api.responses import json_response
from loomlog.services.api.route import Route
from loomlog.services.api.routes import ROUTES
from loomlog.services.api.service import Service
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import ANY_CALLER
from loomlog.services.core.operations import Tag
from loomlog.services.core.shares import ShareLimits
from loomlog.services.stream.shared_slots import SharedSlots
from tests.services.api.serving import Served, Wire, served
from tests.services.application.world import ACME, GLOBEX
from tests.waiting import until

SLOTS = ("requests", "waiting", "streams", "started")
going_on = asyncio.Event()


async def wait(service: Service, caller: Caller, request: Request) -> Response:
    await going_on.wait()
    return json_response({})


async def wait_longer(service: Service, caller: Caller, request: Request) -> Response:
    return await wait(service, caller, request)


async def fail(service: Service, caller: Caller, request: Request) -> Response:
    raise ZeroDivisionError


def route_of(path: str, handler: object, takes: Takes | None = None) -> Route:
    return Route(
        route=f"GET {path}",
        access=ANY_CALLER,
        handler=handler,  # type: ignore[arg-type]  # one of the three above
        summary="A test.",
        tag=Tag(name="Tests", description="Routes of a test."),
        takes_instead=takes,
    )


OWN = (
    route_of("/v1/_test/request", wait),
    route_of("/v1/_test/wait", wait_longer, Takes.WAIT),
    route_of("/v1/_test/fail", fail),
)


@pytest.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A process that has four of everything: a principal may have two, a tenant three, and one more may wait."""
    going_on.clear()
    monkeypatch.setattr(request_shares, "TURN_WAIT_S", 0.02)
    async with served(tmp_path, routes=(*ROUTES, *OWN)) as result:
        for name in SLOTS:
            resource = getattr(result.service.shares, name).shares.resource
            setattr(result.service.shares, name, SharedSlots(resource, ShareLimits.of(4)))
        yield result
        going_on.set()


def in_use(shares: RequestShares) -> dict[str, int]:
    return {name: count for name in SLOTS if (count := getattr(shares, name).shares.in_use)}


@pytest.mark.parametrize(
    ("method", "path", "slots", "resource"),
    [
        ("GET", "/v1/_test/request", "requests", "requests"),
        ("GET", "/v1/_test/wait", "waiting", "waiting requests"),
        ("GET", "/v1/runs/stream", "streams", "event streams"),
        ("POST", "/v1/runs", "started", "streams of started runs"),
    ],
)
async def test_a_greedy_token_has_its_share_and_a_polite_tenant_is_served(
    here: Served, method: str, path: str, slots: str, resource: str
) -> None:
    def begin(caller: Caller) -> Wire:
        body = json.dumps({"agent": "silent", "prompt": "x"}).encode() if method == "POST" else b""
        return Wire(here.app, method, path, caller=caller, body=body).begin()

    greedy = []
    for count in (1, 2):
        greedy.append(begin(ACME))
        await until(lambda count=count: in_use(here.service.shares) == {slots: count})  # type: ignore[misc]
    refused = begin(ACME)
    answer = json.loads(await refused.done())
    assert (refused.status, answer["code"], answer["resource"]) == (429, "share_exhausted", resource)
    assert (answer["bound"], answer["held"], answer["limit"], refused.headers["retry-after"]) == (
        "principal",
        2,
        2,
        "5",
    )
    polite = begin(GLOBEX)
    await until(lambda: in_use(here.service.shares) == {slots: 3})
    going_on.set()
    for wire in (*greedy, polite):
        assert wire.task is not None
        if slots in ("streams", "started"):
            wire.task.cancel()
        await asyncio.wait({wire.task})
    assert in_use(here.service.shares) == {}


async def test_a_request_that_fails_or_is_refused_gives_back_what_it_took(here: Served) -> None:
    for path in ("/v1/_test/fail", "/v1/runs/r_unknown/stream", "/v1/runs?nonsense=1"):
        assert (await here.client(ACME).get(path)).status_code >= 400
    assert (await here.client(ACME).post("/v1/runs", json={"agent": "ghost", "prompt": "x"})).status_code == 400
    assert in_use(here.service.shares) == {}


async def test_nothing_is_started_when_its_stream_is_refused(here: Served) -> None:
    here.service.shares.started = SharedSlots("streams of started runs", ShareLimits.of(1))
    with here.service.shares.started.try_acquire(request_shares.holder_of(GLOBEX, "")):
        answer = await here.client(ACME).post("/v1/runs", json={"agent": "soaker", "prompt": "x"})
    assert (answer.status_code, answer.json()["code"]) == (503, "capacity_exhausted")
    assert here.world.commands() == []


async def test_requests_of_tenants_are_handled_in_turn_and_not_in_the_order_of_arrival(here: Served) -> None:
    """However many a greedy token has sent, a polite tenant waits for one of them for each of its own."""
    slots = here.service.shares.requests = SharedSlots("requests", ShareLimits.of(1), waiting=ShareLimits.of(500))
    order = []

    async def request(caller: Caller) -> None:
        with await slots.acquire(request_shares.holder_of(caller, ""), wait_s=60):
            order.append(caller.tenant)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(200):
            group.create_task(request(ACME))
        for _ in range(3):
            group.create_task(request(GLOBEX))
    turns = [place for place, tenant in enumerate(order) if tenant == GLOBEX.tenant]
    assert turns == [2, 4, 6], "one of the greedy tenant is under way, then each in turn"


def test_the_setting_changes_the_share_of_a_principal_and_none_other() -> None:
    usual, more = RequestShares().streams.shares.limits, RequestShares(streams_per_principal=900).streams.shares.limits
    assert (usual.per_principal, more.per_principal) == (250, 900)
    assert (usual.total, usual.per_tenant) == (more.total, more.per_tenant)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_but_health_and_documents_takes_something(route: Route) -> None:
    documents = ("/v1/openapi", "/v1/docs", "/ui/log", "/.well-known/", "/v1/_mcp_oauth/")
    is_free = route.path in ("/healthz", "/readyz") or route.path.startswith(documents)
    assert (route.takes is Takes.NOTHING) == is_free
    assert not route.is_stream or route.takes in (Takes.STREAM, Takes.START)
