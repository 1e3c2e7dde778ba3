"""The loop that writes the feed of changes of memory.

Before: main.py. After: family_tail.py, projections/memory_feed.
"""

import time
from collections.abc import Sequence
from typing import Any

import psycopg

from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.engine.writer import Statement
from loomlog.projections.memory_feed.changes import RECORDS, delete_changes, statements_of
from loomlog.projections.memory_feed.tables import feed_schema, prepare_feed
from loomlog.schemas.codec import Codec
from loomlog.services.projector.family_tail import FamilyTail, open_family_tail
from loomlog.services.projector.settings import ProjectorSettings

REST_S = 0.1
"""Shortest time between two transactions; a change is told as much later under load."""
HOUR_MS = 3_600_000


def build_memory_feed(settings: ProjectorSettings, codec: Codec | None = None, **options: Any) -> FamilyTail:
    """Return the loop that writes the feed. `options`: replace those of FamilyTail, for tests."""
    schema = feed_schema(settings.prefix)
    retention_ms = settings.memory_changes_retention_hours * HOUR_MS

    def kept_from_ms() -> int:
        return time.time_ns() // 1_000_000 - retention_ms

    async def handle(events: Sequence[PositionedEvent]) -> list[Statement]:
        return statements_of(schema, events, kept_from_ms=kept_from_ms())

    async def maintain(connection: psycopg.AsyncConnection[Any]) -> None:
        await delete_changes(connection, schema, before_ms=kept_from_ms())

    return open_family_tail(
        settings,
        schema,
        RECORDS,
        prepare=lambda connection: prepare_feed(connection, schema),
        handle=handle,
        maintain=maintain,
        codec=codec,
        rest_s=REST_S,
        options=options,
    )
