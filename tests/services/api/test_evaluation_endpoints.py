"""Judgements over HTTP: the body of the tool, the caller outside of runs, and every way to be refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from loomlog.services.families.definition import FAMILY
from loomlog.services.families.definition.services import DefinitionOptions
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME
from tests.services.entities import MemoryEntities

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


async def test_a_refusal_names_the_tool_and_the_reason(here: Served) -> None:
    answer = await here.client(ACME).post(PATH, json={"op": "submit", "run_id": "none", "score": 1})
    assert answer.status_code == 422
    refusal = answer.json()
    assert (refusal["code"], refusal["tool"], refusal["reason"]) == ("tool_refused", "Evaluation", "unknown_run")
    answer = await here.client(ACME).post(PATH, json={"op": "judge"})
    assert answer.json()["reason"] == "unknown_op"
