"""The lag has the cursors, the projectors and the problems of both read models."""

from loomlog.projections.engine.builds import StatusRow
from loomlog.projections.engine.lag import lag_json, read_progress
from tests.projections.counters import TOPIC as ENTITY_TOPIC
from tests.projections.stories import TOPIC, Partition

BROKEN = b"garbage"


def status(topic: str) -> StatusRow:
    return StatusRow(topic, "me", 1, "projecting", 0, 0, 2, 0, 0, None)


async def test_without_tables_of_entities_only_runs_are_counted(builds, project, reader):
    partition = Partition()
    partition.claim()
    partition.records.append(BROKEN)
    await project(partition)
    await builds.write_status(status(TOPIC))
    progress = await read_progress(reader)
    assert (len(progress["statuses"]), progress["problems"]) == (1, 1)


async def test_projectors_and_problems_of_entities_are_told_with_those_of_runs(
    builds, entity_builds, project, project_entities, reader
):
    partition = Partition()
    partition.claim()
    partition.records.append(BROKEN)
    await project(partition)
    await project_entities(partition)
    await builds.write_status(status(TOPIC))
    await entity_builds.write_status(status(ENTITY_TOPIC))
    progress = await read_progress(reader)
    report = lag_json(progress, TOPIC, {0: 5}, now_s=0)
    assert [one["topic"] for one in report["projectors"]] == [TOPIC, ENTITY_TOPIC]
    assert (report["problems"], report["lag"], len(report["partitions"])) == (2, 3, 1)
    assert [(cursor.topic, cursor.partition) for cursor in progress["cursors"]] == [(TOPIC, 0), (ENTITY_TOPIC, 0)]
    of_entities = lag_json(progress, ENTITY_TOPIC, {0: 5}, now_s=0)
    assert (of_entities["lag"], of_entities["partitions"][0]["next_offset"]) == (3, 2)
