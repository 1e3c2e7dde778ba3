"""Operations that share a route: `op` of the body tells them apart, and refusals are shown as the operation says."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.services.api.openapi import build_document
from loomlog.services.api.operation_routes import operation_routes
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.operations import Answer, Call, Effect, Http, Input, Operation, Output, Tag
from loomlog.services.core.refusals import Refused, Unavailable
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, READER
from tests.services.entities import NOW_MS

PATH = "/v1/_wish"


class WishMake(Input, frozen=True, kw_only=True):
    name: str
    why: str | None = None


class WishSee(Input, frozen=True, kw_only=True):
    number: int


class WishMade(Output, frozen=True, kw_only=True):
    name: str
    tenant: str
    is_named: bool


class WishSeen(Output, frozen=True, kw_only=True):
    number: int


def reasoned(refused: Refused) -> Refused:
    return Refused("tool_refused", refused.message, details={"reason": refused.code})


ROUTE = Http(route=f"POST {PATH}", id="change_wish", summary="Make or see.", body_name="WishOperation", op="make")
MAKE: Operation[Any, Any] = Operation(
    name="wish.make",
    summary="Make.",
    input=WishMake,
    output=WishMade,
    access=requires(TENANT),
    effect=Effect.WRITE,
    tag=Tag(name="Wishes", description="Wishes."),
    http=(ROUTE,),
    invalid_code="invalid",
    missing_code="missing",
    pending_code="definition_pending",
    refused=reasoned,
)
SEE: Operation[Any, Any] = replace(
    MAKE, name="wish.see", input=WishSee, output=WishSeen, effect=Effect.READ, http=(replace(ROUTE, op="see"),)
)
ROUTES = operation_routes([MAKE, SEE])


async def make(call: Call[WishMake]) -> Answer[WishMade]:
    if call.input.name == "late":
        raise Unavailable("nobody has answered", is_unknown=True)
    caller = call.caller
    made = WishMade(name=call.input.name, tenant=caller.tenant, is_named=caller.is_tenant_named)
    return Answer(value=made, positions=("loom.entity.events/0:3",))


async def see(call: Call[WishSee]) -> Answer[WishSeen]:
    return Answer(value=WishSeen(number=call.input.number))


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    dispatch = Dispatch({MAKE: make, SEE: see}, clock_ms=lambda: NOW_MS, new_token=lambda: "t")
    async with served(tmp_path, routes=ROUTES) as made:
        made.world.layer.dispatch = dispatch
        yield made


async def test_op_tells_the_operations_of_a_route_apart(here: Served) -> None:
    client = here.client(ACME)
    made = await client.post(PATH, json={"op": "make", "name": "a", "why": None})
    assert (made.status_code, made.json()) == (200, {"name": "a", "tenant": "acme", "is_named": False})
    assert made.headers["x-loomlog-position"] == "loom.entity.events/0:3"
    seen = await client.post(PATH, json={"op": "see", "number": 2})
    assert seen.json() == {"number": 2}
    named = await here.client().post(f"{PATH}?tenant=globex", json={"op": "make", "name": "a"})
    assert named.json() == {"name": "a", "tenant": "globex", "is_named": True}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([], "invalid"),
        ({}, "missing"),
        ({"op": None, "name": "a"}, "missing"),
        ({"op": "mkae"}, "unknown_op"),
        ({"op": "make"}, "missing"),
        ({"op": "make", "name": 1}, "invalid"),
        ({"op": "see", "number": 1, "name": "a"}, "invalid"),
    ],
)
async def test_a_body_that_cannot_be_is_refused_as_the_operation_says(here: Served, body: Any, reason: str) -> None:
    answer = await here.client(ACME).post(PATH, json=body)
    assert (answer.status_code, answer.json()["code"], answer.json()["reason"]) == (422, "tool_refused", reason)


async def test_what_is_no_refusal_of_the_operation_stays_as_it_is(here: Served) -> None:
    client = here.client(ACME)
    broken = await client.post(PATH, content=b"{", headers={"content-type": "application/json"})
    assert (broken.status_code, broken.json()["code"]) == (400, "bad_request")
    assert (await here.client(READER).post(PATH, json={"op": "see", "number": 1})).json()["code"] == (
        "insufficient_scope"
    )
    late = await client.post(PATH, json={"op": "make", "name": "late"})
    assert (late.status_code, late.json()["code"]) == (503, "definition_pending")


def test_the_document_has_the_fields_of_all_and_every_answer() -> None:
    (route,) = ROUTES
    assert (route.operation_id, route.summary) == ("change_wish", "Make or see.")
    document = build_document("1", ROUTES)
    body = document["components"]["schemas"]["WishOperation"]
    assert body["properties"].keys() == {"op", "name", "why", "number"}
    assert (body["properties"]["op"]["enum"], body["required"]) == (["make", "see"], ["op"])
    answer = document["paths"][PATH]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == {"anyOf": [{"$ref": "#/components/schemas/WishMade"}, {"$ref": "#/components/schemas/WishSeen"}]}
