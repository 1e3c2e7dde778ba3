"""What could not be projected: one row for every record that no row could be made of, with its original bytes.

Written in the transaction that moves the cursor past the record, so none is lost and none is counted twice. An empty
table is the normal state; anything in it is for a person (`loomlog projections problems`). After an upgrade that can
read the record, a rebuild leaves it out.

Before: projections/engine/run_projection.py. After: the CLI, the projector's status.
"""

from typing import NamedTuple

from sqlalchemy import func, select, tuple_

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import ProjectionProblem
from loomlog.projections.tables import define_table

PAGE_MAX = 200
"""Most problems of one page; each may carry a record of a megabyte."""


class ProblemRow(NamedTuple):
    """A record that could not be projected."""

    topic: str
    partition: int
    offset: int
    run_id: str
    """The run that is halted by it; empty when it is of no run."""
    kind: str
    """undecodable, unknown_schema, unwritable, broken_sequence or offset_gap."""
    error: str
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


problems = define_table("projection_problems", ProblemRow, key=["topic", "partition", "offset", "kind"])


def apply(topic: str, problem: ProjectionProblem) -> ProblemRow:
    """The row of a problem."""
    return ProblemRow(
        topic=topic,
        partition=problem.partition,
        offset=problem.offset,
        run_id=problem.run_id,
        kind=problem.kind,
        error=problem.error,
        timestamp_ms=problem.timestamp_ms,
        key=problem.key,
        value=problem.value,
    )


async def list_problems(
    reader: PostgresReader, *, limit: int = PAGE_MAX, after: ProblemRow | None = None
) -> list[ProblemRow]:
    """Problems by place. They are the operator's: a record that cannot be read has no tenant."""
    query = select(problems).order_by(*problems.primary_key.columns).limit(max(1, min(limit, PAGE_MAX)))
    if after is not None:
        place = tuple_(after.topic, after.partition, after.offset, after.kind)
        query = query.where(tuple_(*problems.primary_key.columns) > place)
    return [ProblemRow._make(row) for row in await reader.fetch(query)]


async def count_problems(reader: PostgresReader) -> int:
    """How many there are."""
    return int((await reader.fetch(select(func.count()).select_from(problems)))[0][0])
