from loomlog.services.application.resources import TOPICS
from tests.services.api.serving import Served
from tests.services.application.owner import PARTITIONS


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
