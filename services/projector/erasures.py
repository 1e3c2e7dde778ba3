"""The loop that deletes the rows of people who were erased.

Before: main.py. After: family_tail.py, projections/erasures.py.
"""

from collections.abc import Sequence
from typing import Any

from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.engine.writer import Statement
from loomlog.projections.erasures import RECORDS, erasure_statements, erasures_schema, prepare_erasures
from loomlog.schemas.codec import Codec
from loomlog.services.projector.family_tail import FamilyTail, open_family_tail
from loomlog.services.projector.settings import ProjectorSettings


def build_erasures(settings: ProjectorSettings, codec: Codec | None = None, **options: Any) -> FamilyTail:
    """Return the loop. `options`: replace those of FamilyTail, for tests."""
    schema = erasures_schema(settings.prefix)

    async def handle(events: Sequence[PositionedEvent]) -> list[Statement]:
        return erasure_statements(schema, settings.entity_topic, events)

    return open_family_tail(
        settings,
        schema,
        RECORDS,
        prepare=lambda connection: prepare_erasures(connection, settings.prefix),
        handle=handle,
        codec=codec,
        options=options,
    )
