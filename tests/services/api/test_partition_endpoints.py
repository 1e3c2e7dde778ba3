from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from loomlog.services.application.application import TOPICS
from tests.services.api.serving import Served, served
from tests.services.application.owner import PARTITIONS
from tests.services.application.world import ACME


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        yield made


async def test_the_partitions_of_runs_and_of_families_have_their_owners(here: Served) -> None:
    await here.run()
    (run_id,) = here.world.states
    partition = here.world.layer.sources.partition_of(run_id)
    answer = await here.client().get("/v1/_partitions")
    assert answer.status_code == 200, answer.text
    runs, entities = answer.json()["topics"]
    assert (runs["topic"], len(runs["partitions"])) == (TOPICS.events, PARTITIONS)
    assert {one["owner"] for one in runs["partitions"]} == {"tests"}
    own = runs["partitions"][partition]
    assert (own["term"], own["end_offset"], own["lag"], own["projector"]) == (
        0,
        here.world.hub.position(partition),
        0,
        "tests",
    )
    assert (entities["name"], entities["topic"], len(entities["partitions"])) == (
        "entity",
        "loom.entity.events",
        PARTITIONS,
    )


async def test_a_take_over_is_the_newest_of_its_partition(here: Served) -> None:
    term = here.world.claim(2)
    await here.run()
    while here.world.hub.term(2) != term:
        await here.world.log.end_offset(TOPICS.events, 2)
    one = (await here.client().get("/v1/_partitions?takeovers=1")).json()["topics"][0]["partitions"][2]
    assert ([takeover["term"] for takeover in one["takeovers"]], one["has_more"]) == ([term], True)


@pytest.mark.parametrize("query", ["takeovers=0", "takeovers=51", "takeovers=x", "partition=1"])
async def test_a_wrong_number_of_take_overs_is_refused(here: Served, query: str) -> None:
    answer = await here.client().get(f"/v1/_partitions?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_partitions_are_for_administrators(here: Served) -> None:
    answer = await here.client(ACME).get("/v1/_partitions")
    assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
