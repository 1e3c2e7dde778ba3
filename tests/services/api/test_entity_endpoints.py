"""Families over HTTP: every route, and every way to be refused."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import jsonschema_rs
import pytest
import pytest_asyncio

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ProducerRecord
from loomlog.services.api.openapi import build_document
from loomlog.services.api.operation_routes import operation_routes
from loomlog.services.api.routes import ROUTES, check_routes
from loomlog.services.core.entity_operations import entity_operations
from loomlog.services.families.registry import all_families
from loomlog.services.stream.entities.answers import CommandInvalid
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, GLOBEX
from tests.services.entities import COUNTER, UNANSWERED, MemoryEntities

COUNTER_ROWS = operation_routes(entity_operations(COUNTER))
ROWS = (*ROUTES, *COUNTER_ROWS)
INCREMENT = "/v1/_counter/increment"


@pytest_asyncio.fixture(loop_scope="session")
async def entities() -> MemoryEntities:
    return MemoryEntities()


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, entities: MemoryEntities) -> AsyncIterator[Served]:
    families = (*all_families(), COUNTER)
    async with served(
        tmp_path, routes=ROWS, families=families, entity_commands=entities, entity_reads=entities
    ) as made:
        yield made


async def test_a_command_answers_with_its_reply_and_its_position(here: Served, entities: MemoryEntities) -> None:
    answer = await here.client(ACME).post(INCREMENT, json={"name": "a/b", "by": 2})
    assert (answer.status_code, answer.json()) == (200, {"by": 2, "value": 2})
    assert answer.headers["x-loomlog-position"] == "loom.entity.events/1:1"
    (command,) = entities.asked
    envelope = command.envelope
    assert (envelope.tenant, envelope.subject) == ("acme", "acme-op")
    assert envelope.issued_at_ms > 0


async def test_a_command_that_changes_nothing_has_an_empty_reply(here: Served) -> None:
    answer = await here.client(ACME).post(INCREMENT, json={"name": "a", "by": 0})
    assert (answer.status_code, answer.json()) == (200, {})
    assert answer.headers["x-loomlog-position"]


@pytest.mark.parametrize(
    ("by", "status", "code", "refusal"),
    [(-1, 422, "command_invalid", "invalid_step"), (5_000, 409, "command_refused", "counter_full")],
)
async def test_a_refusal_of_the_family_has_its_code(
    here: Served, by: int, status: int, code: str, refusal: str
) -> None:
    answer = await here.client(ACME).post(INCREMENT, json={"name": "a", "by": by})
    assert (answer.status_code, answer.json()["code"], answer.json()["refusal"]) == (status, code, refusal)


async def test_a_quarantined_aggregate_refuses(here: Served, entities: MemoryEntities) -> None:
    client = here.client(ACME)
    await client.post(INCREMENT, json={"name": "a", "by": 1})
    entities.quarantine("acme", "a")
    answer = await client.post(INCREMENT, json={"name": "a", "by": 1})
    assert (answer.status_code, answer.json()["code"]) == (409, "aggregate_quarantined")
    assert (await client.get("/v1/_counter/show?id=a")).json()["quarantine"] == "a bug"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UNANSWERED, 503, "command_pending"),
        (CommandInvalid("too long an id"), 400, "bad_request"),
        (Transient("no broker", kind="network"), 503, "log_unavailable"),
    ],
)
async def test_a_command_that_gets_no_answer(
    here: Served, entities: MemoryEntities, error: Exception, status: int, code: str
) -> None:
    entities.error = error
    answer = await here.client(ACME).post(INCREMENT, json={"name": "a", "by": 1}, headers={"Idempotency-Key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert ("retry-after" in answer.headers) == (status == 503)
    if code == "command_pending":
        assert "with the same Idempotency-Key does no harm" in answer.json()["error"]
        unkeyed = await here.client(ACME).post(INCREMENT, json={"name": "a", "by": 1})
        assert "may do it twice" in unkeyed.json()["error"]


async def test_a_tenant_sees_and_changes_only_its_own(here: Served) -> None:
    await here.client(ACME).post(INCREMENT, json={"name": "a", "by": 1})
    assert (await here.client(GLOBEX).get("/v1/_counter/show?id=a")).status_code == 404
    assert (await here.client(GLOBEX).get("/v1/_counter")).json()["items"] == []
    for path in ("/v1/_counter?tenant=acme", "/v1/_counter/show?id=a&tenant=acme"):
        assert (await here.client(GLOBEX).get(path)).status_code == 403
    assert (await here.client(GLOBEX).post(f"{INCREMENT}?tenant=acme", json={"name": "a", "by": 1})).status_code == 403
    admin = here.client()
    assert (await admin.get("/v1/_counter/show?id=a")).status_code == 404
    assert (await admin.get("/v1/_counter/show?id=a&tenant=acme")).json()["state"]["value"] == 1
    assert (await admin.get("/v1/_counter/show?id=a&tenant=a/b")).status_code == 400


async def test_an_aggregate_is_shown_as_plain_json(here: Served) -> None:
    client = here.client(ACME)
    await client.post(INCREMENT, json={"name": "a/b c", "by": 3})
    shown = (await client.get("/v1/_counter/show", params={"id": "a/b c"})).json()
    assert shown == {
        "id": "a/b c",
        "tenant_id": "acme",
        "state": {"value": 3, "stamp": "AP8="},
        "quarantine": None,
        "created_at": "2027-01-15T08:00:00.000Z",
        "updated_at": "2027-01-15T08:00:00.000Z",
    }
    assert (await client.get("/v1/_counter/show?id=b")).status_code == 404
    assert (await client.get("/v1/_counter/show")).status_code == 400


async def test_a_list_has_pages(here: Served) -> None:
    client = here.client(ACME)
    for name in ("b/1", "a/2", "a/1", "ä/3", "a/3"):
        await client.post(INCREMENT, json={"name": name, "by": 1})
    names: list[str] = []
    cursor = ""
    for _ in range(3):
        page = (await client.get("/v1/_counter", params={"limit": 2, "cursor": cursor})).json()
        names += [row["id"] for row in page["items"]]
        cursor = page["next"]
    assert (names, cursor) == (["a/1", "a/2", "a/3", "b/1", "ä/3"], None)
    within = (await client.get("/v1/_counter?prefix=a/")).json()
    assert [row["id"] for row in within["items"]] == ["a/1", "a/2", "a/3"]
    for wrong in ("limit=0", "limit=201", "cursor=!", "cursor=%20", "prefixx=a"):
        assert (await client.get(f"/v1/_counter?{wrong}")).status_code == 400, wrong


async def test_a_question_is_answered_from_the_state(here: Served) -> None:
    client = here.client(ACME)
    await client.post(INCREMENT, json={"name": "a", "by": 3})
    assert (await client.get("/v1/_counter/remaining?id=a")).json() == {"remaining": 997}
    assert (await client.get("/v1/_counter/remaining?id=a&of=10")).json() == {"remaining": 7}
    assert (await client.get("/v1/_counter/remaining?id=b")).status_code == 404
    assert (await client.get("/v1/_counter/remaining?id=a&off=10")).status_code == 400


async def test_reads_wait_for_the_positions_of_the_request(here: Served, entities: MemoryEntities) -> None:
    client = here.client(ACME)
    position = (await client.post(INCREMENT, json={"name": "a", "by": 1})).headers["x-loomlog-position"]
    for path in ("/v1/_counter/show?id=a", "/v1/_counter"):
        entities.waited.clear()
        assert (await client.get(path, headers={"X-Loomlog-Position": position})).status_code == 200
        assert (position,) in entities.waited
    here.world.log.put(entities.topic, 1, [ProducerRecord(key=None, value=b"")] * 2)
    entities.unread = frozenset({position})
    late = await client.get(f"/v1/_counter/show?id=a&position={position}")
    assert (late.status_code, late.json()["code"], late.json()["lag"]) == (503, "not_yet", 3)
    assert (await client.get("/v1/_counter?position=loom.nothing/1:1")).status_code == 400


async def test_a_read_without_its_store_is_503(here: Served, entities: MemoryEntities) -> None:
    entities.error = Transient("no Postgres", kind="network")
    gone = await here.client(ACME).get("/v1/_counter")
    assert (gone.status_code, gone.json()["code"]) == (503, "projection_unavailable")


async def test_the_document_describes_what_is_answered(here: Served) -> None:
    document = build_document("1", ROWS)
    schemas = document["components"]["schemas"]
    operation = document["paths"][INCREMENT]["post"]
    assert operation["tags"] == ["Counter"]
    assert {"name": "Counter", "description": "A counter that only grows."} in document["tags"]
    body = schemas["CounterIncrementBody"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("CounterIncrementBody")
    (example,) = body["examples"]
    assert (await here.client(ACME).post(INCREMENT, json=example)).status_code == 200
    page = (await here.client(ACME).get("/v1/_counter")).json()
    jsonschema_rs.validate({**schemas["AggregatePage"], "components": document["components"]}, page)
    jsonschema_rs.validate(schemas["Aggregate"], page["items"][0])
    for name in re.findall(r"#/components/schemas/(\w+)", str(document)):
        assert name in schemas
    assert "POST /v1/_counter/increment" in here.service.docs_page.decode().replace("</span>", "").replace("  ", " ")


def test_a_family_brings_its_routes_and_takes_them_away() -> None:
    paths = build_document("1", ROWS)["paths"]
    without = build_document("1", ROUTES)["paths"]
    added = {path: operations for path, operations in paths.items() if path not in without}
    assert {(path, *operations) for path, operations in added.items()} == {
        (INCREMENT, "post"),
        ("/v1/_counter", "get"),
        ("/v1/_counter/show", "get"),
        ("/v1/_counter/remaining", "get"),
    }
    assert {path: paths[path] for path in without} == without


def test_a_family_called_like_a_fixed_route_is_an_error_at_start() -> None:
    with pytest.raises(AssertionError, match="rename the family"):
        check_routes((*ROWS, *COUNTER_ROWS))
