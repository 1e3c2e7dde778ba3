"""How far the read models are behind the log, as the JSON of `loomlog projections lag` and GET /v1/_projections.

Before: the tables. After: services/api/operator_endpoints.py, services/cli/log/projections.py.
"""

from collections.abc import Mapping, Sequence

from typing_extensions import TypedDict

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.builds import CHANNEL_SUFFIX, ENTITY_SUFFIX, StatusRow, has_status, read_status
from loomlog.projections.engine.cursors import CursorRow, list_cursors
from loomlog.projections.problems import count_problems


class PartitionLag(TypedDict):
    """A partition of the events topic. term, epoch and owner are null before a projector has claimed it."""

    partition: int
    next_offset: int
    end_offset: int
    lag: int
    term: int | None
    epoch: int | None
    owner: str | None


class ProjectorStatus(TypedDict):
    """What a projector last reported; `said_s_ago` grows when it is down."""

    topic: str
    owner: str
    build: int
    state: str
    events_behind: int
    lag_ms: int
    applied_events: int
    stale_records: int
    said_s_ago: float


class ProjectionLag(TypedDict):
    """The lag in records, over all partitions and by partition; problems and projectors of runs and of entities."""

    topic: str
    lag: int
    problems: int
    partitions: list[PartitionLag]
    projectors: list[ProjectorStatus]


class Progress(TypedDict):
    """What the tables say of the projection."""

    cursors: Sequence[CursorRow]
    statuses: Sequence[StatusRow]
    problems: int


async def read_progress(reader: PostgresReader) -> Progress:
    """Read cursors, statuses of the projectors and the number of problems. Raises Transient, Permanent not_found.

    A reader of the schemas of runs reads those of entities and channels too.
    """
    progress: Progress = {
        "cursors": await list_cursors(reader),
        "statuses": await read_status(reader),
        "problems": await count_problems(reader),
    }
    for suffix in (ENTITY_SUFFIX, CHANNEL_SUFFIX):
        schema = reader.schema + suffix
        if await has_status(reader, schema):
            progress["cursors"] = [*progress["cursors"], *await list_cursors(reader, schema)]
            progress["statuses"] = [*progress["statuses"], *await read_status(reader, schema)]
            progress["problems"] += await count_problems(reader, schema)
    return progress


def lag_json(progress: Progress, topic: str, ends: Mapping[int, int], *, now_s: float) -> ProjectionLag:
    """Compare the cursors with the end offsets of the topic's partitions. `now_s`: epoch seconds."""
    cursors = {cursor.partition: cursor for cursor in progress["cursors"] if cursor.topic == topic}
    partitions = [_partition_json(number, end, cursors.get(number)) for number, end in sorted(ends.items())]
    return {
        "topic": topic,
        "lag": sum(one["lag"] for one in partitions),
        "problems": progress["problems"],
        "partitions": partitions,
        "projectors": [_projector_json(status, now_s) for status in progress["statuses"]],
    }


def _partition_json(number: int, end: int, cursor: CursorRow | None) -> PartitionLag:
    next_offset = cursor.next_offset if cursor is not None else 0
    return {
        "partition": number,
        "next_offset": next_offset,
        "end_offset": end,
        "lag": max(0, end - next_offset),
        "term": cursor.term if cursor is not None else None,
        "epoch": cursor.epoch if cursor is not None else None,
        "owner": cursor.owner if cursor is not None else None,
    }


def _projector_json(status: StatusRow, now_s: float) -> ProjectorStatus:
    return {
        "topic": status.topic,
        "owner": status.owner,
        "build": status.build,
        "state": status.state,
        "events_behind": status.events_behind,
        "lag_ms": status.lag_ms,
        "applied_events": status.applied_events,
        "stale_records": status.stale_records,
        "said_s_ago": round(max(0.0, now_s - status.at.timestamp()), 3),
    }
