"""Which fold made the rows of each family of entities: the table entity_folds.

Before: entity_projection.py claims. After: the projector folds outdated families again (rebuild.py).
"""

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import sql

from loomlog.connectors.errors import Transient
from loomlog.projections.engine.entity_fold import EntityFold
from loomlog.projections.entities import FoldRow, Seal, entities, entity_folds, seal_name


class NewerFold(Transient):
    """Rows of a family were made by a newer version of its fold: this process is older and must not write."""


async def outdated_families(
    connection: psycopg.AsyncConnection[Any], schema: str, folds: Mapping[str, EntityFold], seal: Seal
) -> frozenset[str]:
    """Families with rows of another version, under another key of the seals, or of no fold. Raises NewerFold."""
    recorded = await _read_folds(connection, schema)
    outdated = set()
    for family, fold in folds.items():
        row = recorded.get(family)
        if row is None:
            if await _has_rows(connection, schema, family):
                outdated.add(family)
        elif row.version > fold.version:
            raise NewerFold(
                f"the rows of the family {family} are of version {row.version}, this projector makes version "
                f"{fold.version}: it is older and writes nothing; upgrade it",
                kind="unavailable",
            )
        elif (row.version, row.seal) != (fold.version, seal_name(seal)):
            outdated.add(family)
    return frozenset(outdated)


async def record_folds(
    connection: psycopg.AsyncConnection[Any], schema: str, folds: Mapping[str, EntityFold], seal: Seal
) -> None:
    """Records that the rows of these families are made by these folds from here on, and those of others by none."""
    table = sql.Identifier(schema, entity_folds.name)
    async with connection.transaction():
        await connection.execute(sql.SQL("DELETE FROM {} WHERE family <> ALL(%s)").format(table), (list(folds),))
        for family, fold in sorted(folds.items()):
            await connection.execute(
                sql.SQL(
                    "INSERT INTO {} AS f (family, version, seal) VALUES (%s, %s, %s) ON CONFLICT (family) "
                    "DO UPDATE SET version = excluded.version, seal = excluded.seal "
                    "WHERE (f.version, f.seal) <> (excluded.version, excluded.seal)"
                ).format(table),
                FoldRow(family, fold.version, seal_name(seal)),
            )


async def _read_folds(connection: psycopg.AsyncConnection[Any], schema: str) -> dict[str, FoldRow]:
    result = await connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, entity_folds.name)))
    rows = [FoldRow._make(row) for row in await result.fetchall()]
    return {row.family: row for row in rows}


async def _has_rows(connection: psycopg.AsyncConnection[Any], schema: str, family: str) -> bool:
    result = await connection.execute(
        sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE family = %s)").format(sql.Identifier(schema, entities.name)),
        (family,),
    )
    row = await result.fetchone()
    assert row is not None
    return bool(row[0])
