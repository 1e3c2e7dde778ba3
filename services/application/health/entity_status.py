"""What the read model of a topic set says of its aggregates.

Before: health_checks.py, services/cli/doctor/entity_checks.py. After: components.py, projections/entities.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loomlog.connectors.protocols import LogRanges
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.lag import ProjectionLag, lag_json, read_progress
from loomlog.projections.entities import EntityRow, count_quarantined, list_quarantined

LISTED_MAX = 5
"""Aggregates or definitions named in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityStatus:
    """What the read model of a topic set says."""

    lag: ProjectionLag
    quarantined: int
    first_quarantined: Sequence[EntityRow]


async def entity_status(
    reader: PostgresReader, ranges: LogRanges, topic: str, partitions: int, *, now_s: float
) -> EntityStatus:
    """Read the status of the topic set of an events topic; `reader` is of its tables. Raises ConnectorError."""
    progress = await read_progress(reader)
    quarantined = await count_quarantined(reader)
    rows = await list_quarantined(reader, LISTED_MAX) if quarantined else []
    ends = await ranges.end_offsets(topic, partitions)
    return EntityStatus(
        lag=lag_json(progress, topic, ends, now_s=now_s), quarantined=quarantined, first_quarantined=rows
    )
