"""Judgements over HTTP: the body of the tool, the caller outside of runs, and every way to be refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from loomlog.services.families.definition import FAMILY
from loomlog.services.families.definition.services import DefinitionOptions
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, GLOBEX
from tests.services.entities import UNANSWERED, MemoryEntities

PATH = "/v1/_evaluation"


@pytest_asyncio.fixture(loop_scope="session")
async def entities() -> MemoryEntities:
    return MemoryEntities(FAMILY)


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, entities: MemoryEntities) -> AsyncIterator[Served]:
    options = [DefinitionOptions(run_wait_s=0.1)]
    async with served(tmp_path, entity_commands=entities, entity_reads=entities, family_options=options) as made:
        yield made


async def finished(here: Served) -> str:
    frames = await here.run(caller=ACME)
    return str(next(frame.data["run_id"] for frame in frames if frame.event == "agent"))


async def test_a_run_is_judged_and_the_judgement_is_read(here: Served) -> None:
    run_id, client = await finished(here), here.client(ACME)
    body = {"op": "submit", "run_id": run_id, "score": 0.5, "rationale": "fine"}
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    row = answer.json()
    assert (row["run_id"], row["score"], row["emitter_role"]) == (run_id, 0.5, "external")
    assert row["def_id"].startswith("def_")
    assert answer.headers["x-loomlog-position"] == "loom.entity.events/1:1"
    read = await client.post(PATH, json={"op": "get", "eval_id": row["eval_id"]})
    assert read.json()["rationale"] == "fine"
    assert "x-loomlog-position" not in read.headers
    sums = await client.post(PATH, json={"op": "aggregate", "def_id": row["def_id"]})
    assert sums.json()["count"] == 1


async def test_the_same_idempotency_key_is_the_same_judgement(here: Served) -> None:
    body = {"op": "submit", "run_id": await finished(here), "score": 1}
    ids = [
        (await here.client(ACME).post(PATH, json=body, headers={"Idempotency-Key": key})).json()["eval_id"]
        for key in ("k", "k", "l")
    ]
    assert ids[0] == ids[1] != ids[2]


async def test_a_refusal_names_the_tool_and_the_reason(here: Served) -> None:
    answer = await here.client(ACME).post(PATH, json={"op": "submit", "run_id": "none", "score": 1})
    assert answer.status_code == 422
    refusal = answer.json()
    assert (refusal["code"], refusal["tool"], refusal["reason"]) == ("tool_refused", "Evaluation", "unknown_run")
    answer = await here.client(ACME).post(PATH, json={"op": "judge"})
    assert answer.json()["reason"] == "unknown_op"


async def test_a_run_of_another_tenant_is_unknown_and_an_administrator_names_the_tenant(
    here: Served,
) -> None:
    body = {"op": "submit", "run_id": await finished(here), "score": 1}
    assert (await here.client(GLOBEX).post(PATH, json=body)).json()["reason"] == "unknown_run"
    assert (await here.client(GLOBEX).post(f"{PATH}?tenant=acme", json=body)).json()["code"] == "insufficient_scope"
    assert (await here.client().post(PATH, json=body)).json()["reason"] == "unknown_run"
    assert (await here.client().post(f"{PATH}?tenant=acme", json=body)).status_code == 200


async def test_without_an_owner_it_is_pending(here: Served, entities: MemoryEntities) -> None:
    run_id = await finished(here)
    entities.error = UNANSWERED
    answer = await here.client(ACME).post(PATH, json={"op": "submit", "run_id": run_id, "score": 1})
    assert (answer.status_code, answer.json()["code"]) == (503, "definition_pending")
