"""The loop that deletes the rows of people who were erased.

Before: main.py. After: family_tail.py, projections/erasures.py.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from loomlog.connectors.kafka import count_partitions, open_tail
from loomlog.connectors.storage.postgres import connect
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.engine.writer import Statement
from loomlog.projections.erasures import RECORDS, erasure_statements, erasures_schema, prepare_erasures
from loomlog.schemas.codec import Codec
from loomlog.services.projector.family_tail import FamilyTail
from loomlog.services.projector.settings import ProjectorSettings


def build_erasures(settings: ProjectorSettings, codec: Codec | None = None, **options: Any) -> FamilyTail:
    """Return the loop. `options`: replace those of FamilyTail, for tests."""
    schema = erasures_schema(settings.prefix)

    async def handle(events: Sequence[PositionedEvent]) -> list[Statement]:
        return erasure_statements(schema, settings.entity_topic, events)

    defaults: dict[str, Any] = {
        "owner": settings.owner,
        "connect": partial(connect, settings.postgres),
        "open_tail": partial(open_tail, settings.kafka, settings.entity_topic),
        "count_partitions": lambda: count_partitions(settings.kafka, settings.entity_topic),
    }
    return FamilyTail(
        schema,
        settings.entity_topic,
        RECORDS,
        prepare=lambda connection: prepare_erasures(connection, settings.prefix),
        handle=handle,
        codec=codec,
        **(defaults | options),
    )
