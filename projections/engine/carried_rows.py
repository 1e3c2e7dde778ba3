"""Rows of aggregates whose first events are deleted: a newer fold takes their states over instead of folding again.

Where the log has every event, the rows of an outdated family are folded again (rebuild.py). Where old events are
deleted, that would lose what was in them (decision 42), so a rebuild is refused, and each row gets the version and the
seal of this process from the state that is in it. So a family of such a topic must read the states of its versions
before. Rows that it cannot read stay as they are, and their aggregates are halted at their next event. Items stay.

Before: the projector finds an outdated family, or the key of the seals was changed. After: projection.py goes on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from loomlog.connectors.errors import Transient
from loomlog.projections.engine.builds import Build
from loomlog.projections.engine.entity_fold import QUARANTINE_CHARACTERS_MAX, EntityFold, FoldFailed
from loomlog.projections.engine.family_folds import record_folds
from loomlog.projections.entities import EntityRow, Seal, entities, sealed, verify_seal

BATCH = 1_000
"""Rows read and written at once."""
CARRIED = ("version", "quarantine", "due_ms", "is_over", "state", "seal")
"""Columns that another fold may change."""


class EventsDeleted(Transient):
    """The topic does not begin with its first record, so no rows can be made from it without a loss."""


def require_whole_log(topic: str, beginnings: Mapping[int, int]) -> None:
    """Raise EventsDeleted when a partition does not begin at offset 0."""
    for partition, first in sorted(beginnings.items()):
        if first > 0:
            raise EventsDeleted(
                f"the events before offset {first} of {topic}/{partition} are deleted, so a rebuild would lose the "
                "aggregates that they made: the rows stay as they are",
                kind="unavailable",
            )


async def carry_rows(
    connection: psycopg.AsyncConnection[Any],
    build: Build,
    topic: str,
    families: frozenset[str],
    *,
    folds: Mapping[str, EntityFold],
    seals: Sequence[Seal],
) -> int:
    """Make the rows of these families those of these folds, in one transaction that fences the projector of the topic;
    returns the number of rows that could be. `seals`: the one that rows get, then those that they may have.
    """
    carried, after = 0, ""
    table = sql.Identifier(build.schema, entities.name)
    async with connection.transaction():
        await connection.execute(
            sql.SQL("UPDATE {} SET epoch = epoch + 1 WHERE topic = %s").format(sql.Identifier(build.schema, "cursors")),
            (topic,),
        )
        while True:
            result = await connection.execute(
                sql.SQL(
                    "SELECT * FROM {} WHERE family = ANY(%s) AND aggregate > %s ORDER BY aggregate LIMIT %s"
                ).format(table),
                (sorted(families), after, BATCH),
            )
            rows = [EntityRow._make(row) for row in await result.fetchall()]
            if not rows:
                break
            after = rows[-1].aggregate
            changed = [row for row in (_carried(one, folds[one.family], seals) for one in rows) if row is not None]
            async with connection.cursor() as cursor:
                await cursor.executemany(
                    sql.SQL("UPDATE {} SET {} WHERE aggregate = %s").format(
                        table, sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in CARRIED)
                    ),
                    [(*(getattr(row, name) for name in CARRIED), row.aggregate) for row in changed],
                )
            carried += len(changed)
        await record_folds(connection, build.schema, folds, seals[0])
    return carried


def _carried(row: EntityRow, fold: EntityFold, seals: Sequence[Seal]) -> EntityRow | None:
    """Return the row as this fold has it; None when it cannot be read."""
    if not verify_seal(row, *seals):
        return None
    if row.halted_offset >= 0:
        return sealed(row._replace(version=fold.version), seals[0])
    try:
        summary = fold.summary(fold.decode(row.state.encode()))
    except FoldFailed:
        return None
    return sealed(
        row._replace(
            version=fold.version,
            quarantine=summary.quarantine.replace("\x00", "\ufffd")[:QUARANTINE_CHARACTERS_MAX],
            due_ms=summary.due_ms,
            is_over=summary.is_over,
            state=summary.state.decode(),
        ),
        seals[0],
    )
