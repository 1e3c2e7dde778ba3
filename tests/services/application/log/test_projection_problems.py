from typing import Any

from loomlog.connectors.storage.postgres import PostgresReader, open_reader
from loomlog.schemas.generated.entity_events import AggregateQuarantined
from loomlog.services.application.log.projection_problems import ProjectionProblems
from tests.projections.conftest import builds, connection, options, prefix, project, reader
from tests.projections.counters import Counters, counter
from tests.projections.entity_fixtures import entity_builds, entity_prefix, entity_reader, project_entities
from tests.projections.stories import Partition

__all__ = [
    "builds",
    "connection",
    "entity_builds",
    "entity_prefix",
    "entity_reader",
    "options",
    "prefix",
    "project",
    "project_entities",
    "reader",
]


async def test_the_report_has_what_each_read_model_lacks(
    project: Any, project_entities: Any, reader: PostgresReader, entity_reader: PostgresReader
) -> None:
    partition = Partition()
    partition.claim()
    partition.records.append(b"garbage")
    await project(partition)
    await project_entities(partition)
    problems = ProjectionProblems(reader, [entity_reader])
    report = await problems.report()
    assert report["count"] == 2
    assert [(one["topic"], one["offset"], one["kind"], one["run_id"]) for one in report["problems"]] == [
        ("loom.run.events", 1, "undecodable", None),
        ("loom.entity.events", 1, "undecodable", None),
    ]
    assert len((await problems.report(limit=1))["problems"]) == 1


async def test_aggregates_that_stand_still_are_listed_with_the_reason(
    project_entities: Any, entity_reader: PostgresReader
) -> None:
    partition = Counters()
    partition.claim()
    partition.raise_("well", 1)
    partition.add(counter("b"), AggregateQuarantined(error="a bug in decide"), tenant="acme")
    partition.raise_("a", 1)
    partition.seqs[counter("a")] += 1
    partition.raise_("a", 2)
    await project_entities(partition)
    report = await ProjectionProblems(None, [entity_reader]).report()
    assert report["quarantined_count"] == 2
    halted, quarantined = report["quarantined"]
    assert (halted["aggregate"], halted["tenant_id"], halted["seq"]) == (counter("a"), "acme", 1)
    assert halted["halted_offset"] is not None
    assert (quarantined["reason"], quarantined["halted_offset"]) == ("a bug in decide", None)


async def test_tables_that_no_projector_has_made_lack_nothing(options: Any, prefix: str) -> None:
    nothing = await open_reader(options, schema=f"{prefix}_none", max_connections=1)
    try:
        report = await ProjectionProblems(nothing, [nothing]).report()
    finally:
        await nothing.close()
    assert (report["count"], report["quarantined_count"]) == (0, 0)
