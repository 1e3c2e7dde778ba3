"""What the read models lack: records that could not be projected, and aggregates in which nothing is decided.

A record that could not be projected is a row with the reason (projections/problems.py). An aggregate is quarantined by
its owner, or halted by the projector at such a record; GET /v1/_repair shows one of them.

Before: services/application/operations/projection_handlers.py, services/cli/log/projections.py. After:
projections/problems.py.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.builds import has_status
from loomlog.projections.entities import EntityRow, count_quarantined, list_quarantined
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.problems import ProblemRow, count_problems, list_problems
from loomlog.services.application import limits
from loomlog.services.application.errors import unavailable
from loomlog.services.application.log.json_types import (
    ProjectionProblemJson,
    ProjectionProblemReport,
    QuarantinedAggregate,
)

PROBLEMS_DEFAULT = 50
PROBLEMS_MAX = 100
"""Maximum rows of a report: the bytes of a record, at most a megabyte, are read with its row."""


class ModelProblems(NamedTuple):
    """The problems of one read model."""

    problems: int
    first: list[ProblemRow]
    quarantined: int
    first_quarantined: list[EntityRow]


class ProjectionProblems:
    """The use case for administrators."""

    def __init__(self, runs: PostgresReader | None, entities: Sequence[PostgresReader]) -> None:
        """`runs` and `entities`: readers of the tables of runs, and of those of each topic set of aggregates."""
        self._runs, self._entities = runs, entities
        self._lock = asyncio.Lock()

    async def report(self, *, limit: int = PROBLEMS_DEFAULT) -> ProjectionProblemReport:
        """Return the first problems by position, and the first quarantined aggregates by id.

        Raises Refused: projection_unavailable.
        """
        readers = [(self._runs, False)] if self._runs is not None else []
        readers += [(reader, True) for reader in self._entities]
        try:
            async with asyncio.timeout(limits.PROJECTION_WAIT_S), self._lock:
                models = [await read_problems(one, limit, has_aggregates=has) for one, has in readers]
        except TimeoutError as error:
            late = Transient(f"read problems: no answer in {limits.PROJECTION_WAIT_S:g} s", kind="timeout")
            raise unavailable("projection", late) from error
        except ConnectorError as error:
            raise unavailable("projection", error) from error
        problems = [problem_json(row) for model in models for row in model.first]
        quarantined = [_aggregate_json(row) for model in models for row in model.first_quarantined]
        return {
            "count": sum(model.problems for model in models),
            "problems": problems[:limit],
            "quarantined_count": sum(model.quarantined for model in models),
            "quarantined": quarantined[:limit],
        }


async def read_problems(reader: PostgresReader, limit: int, *, has_aggregates: bool) -> ModelProblems:
    """Return the problems of a read model, none while no projector has made its tables. Raises ConnectorError."""
    if not await has_status(reader, reader.schema):
        return ModelProblems(0, [], 0, [])
    count = await count_problems(reader)
    quarantined = await count_quarantined(reader) if has_aggregates else 0
    return ModelProblems(
        problems=count,
        first=await list_problems(reader, limit=limit) if count else [],
        quarantined=quarantined,
        first_quarantined=await list_quarantined(reader, limit) if quarantined else [],
    )


def problem_json(row: ProblemRow) -> ProjectionProblemJson:
    """Return a problem without the bytes of its record, which GET /v1/_log/topics has."""
    return {
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.offset,
        "at": format_rfc3339(row.timestamp_ms),
        "run_id": row.run_id or None,
        "kind": row.kind,
        "error": row.error,
    }


def _aggregate_json(row: EntityRow) -> QuarantinedAggregate:
    return {
        "aggregate": row.aggregate,
        "tenant_id": row.tenant or None,
        "seq": row.seq,
        "reason": row.quarantine,
        "halted_offset": row.halted_offset if row.halted_offset >= 0 else None,
    }
