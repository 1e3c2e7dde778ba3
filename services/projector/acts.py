"""The loop that writes the list of acts, and the audit file.

The file gets a line for each event, appended and synced before the rows are committed: after a crash the last lines may
be there twice, with the same partition and offset, and none is missing.

Before: main.py. After: family_tail.py, projections/acts.py.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loomlog.connectors.errors import Permanent
from loomlog.projections.acts import RECORDS, act_line, act_statements, acts_schema, prepare_acts
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.engine.writer import Statement
from loomlog.schemas.codec import Codec
from loomlog.services.projector.family_tail import FamilyTail, open_family_tail
from loomlog.services.projector.settings import ProjectorSettings

FILE_MODE = 0o600
"""Acts name people."""


def build_act_log(settings: ProjectorSettings, codec: Codec | None = None, **options: Any) -> FamilyTail:
    """Return the loop. `options`: replace those of FamilyTail, for tests. Raises Permanent for an audit file that
    cannot be written.
    """
    schema, file = acts_schema(settings.prefix), settings.audit_log_path
    if file is not None:
        _append(file, b"")

    async def handle(events: Sequence[PositionedEvent]) -> list[Statement]:
        if file is not None:
            await asyncio.to_thread(_append, file, b"".join(map(act_line, events)))
        return act_statements(schema, events)

    return open_family_tail(
        settings,
        schema,
        RECORDS,
        prepare=lambda connection: prepare_acts(connection, settings.prefix),
        handle=handle,
        codec=codec,
        options=options,
    )


def _append(file: Path, lines: bytes) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        try:
            while lines:
                lines = lines[os.write(descriptor, lines) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        text = f"LOOMLOG_AUDIT_LOG_PATH is {file}, which cannot be written: {error.strerror}"
        raise Permanent(text, kind="invalid") from error
