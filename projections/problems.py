"""Projection problems: one row for every record that could not be projected, with its original bytes.

Written in the transaction that moves the cursor past the record, so none is lost or counted twice. The table is
normally empty; a row needs an operator (`loomlog projections problems`). After an upgrade that can read the record, a
rebuild has no row for it.

Before: projections/engine/projection.py. After: the CLI, the projector's status.
"""

from typing import NamedTuple

from msgspec import structs
from sqlalchemy import func, select, tuple_

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.batch import ProjectionProblem
from loomlog.projections.tables import define_table, entity_metadata, in_schema

PAGE_MAX = 200
"""Most problems of one page; each may carry a record of a megabyte."""


class ProblemRow(NamedTuple):
    """A record that could not be projected."""

    topic: str
    partition: int
    offset: int
    run_id: str
    """The run or the entity it halts; empty when it belongs to none."""
    kind: str
    """As in ProjectionProblem."""
    error: str
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


problems = define_table("projection_problems", ProblemRow, key=["topic", "partition", "offset", "kind"])
entity_problems = problems.to_metadata(entity_metadata)


def apply(topic: str, problem: ProjectionProblem) -> ProblemRow:
    """The row of a problem."""
    return ProblemRow(topic=topic, **structs.asdict(problem))


async def list_problems(
    reader: PostgresReader, *, limit: int = PAGE_MAX, after: ProblemRow | None = None
) -> list[ProblemRow]:
    """Problems by position. For operators only: an unreadable record has no tenant."""
    query = select(problems).order_by(*problems.primary_key.columns).limit(max(1, min(limit, PAGE_MAX)))
    if after is not None:
        position = tuple_(after.topic, after.partition, after.offset, after.kind)
        query = query.where(tuple_(*problems.primary_key.columns) > position)
    return [ProblemRow._make(row) for row in await reader.fetch(query)]


async def count_problems(reader: PostgresReader, prefix: str = "") -> int:
    """Number of problems of the reader's read model, or of another one."""
    return int((await reader.fetch(select(func.count()).select_from(in_schema(problems, prefix))))[0][0])
