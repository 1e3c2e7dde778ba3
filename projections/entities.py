"""Entities: a row for each aggregate of the entity topics, and an index of the commands that were handled.

An aggregate rests in its row: state, seq and digest are what its owner needs to continue with it. The rows are complete
below the cursor of a partition; so read the cursor (`next_offsets`) first and the rows after it.

A row carries a seal over all its other columns, an HMAC where the installation has a secret key, so that a row that was
edited is recognised and folded again from the log (`verify_seal`).

An aggregate that cannot be folded stays as it was at its last good event: `halted_offset` names the record it was
halted at and `quarantine` says why. Its next AggregateRestated ends the halt.

Before: engine/entity_projection.py. After: services/runtime loads and verifies, the API lists.
"""

import hmac
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

from msgspec import json
from sqlalchemy import ARRAY, BigInteger, Index, func, literal, select, text, true, tuple_

from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.cursors import cursors
from loomlog.projections.tables import (
    Json,
    Scope,
    define_table,
    entity_metadata,
    in_scope,
    one_of,
    page_token,
    parse_page_token,
)

IDS_MAX = 1_000
"""Most ids of one query; more are read in several."""
PAGE_MAX = 500
"""Most rows of one page."""
TIMERS_MAX = 20_000
"""Most timers of one query."""
ESCAPE = "!"
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

Seal = Callable[[bytes], bytes]
"""Makes the seal of a row from the bytes of its other columns."""


class EntityRow(NamedTuple):
    """An aggregate of the entity topics."""

    aggregate: str
    """Full id: `<family>:<tenant>/<name>`."""
    family: str
    tenant: str
    """Empty for an aggregate of the whole installation."""
    name: str
    partition: int
    seq: int
    """The seq of the last event in the state; 0 when none could be folded."""
    digest: bytes
    """The digest of the last event in the state, which the next one names in `prev`."""
    first_offset: int
    last_offset: int
    """Offset of the last event in the state."""
    version: int
    """Version of the fold that made the state; 0 when no family of this installation could."""
    quarantine: str
    """Why nothing is decided in it, or why it was halted; empty if it is intact."""
    halted_offset: int
    """Offset of the record that could not be folded, -1 if there is none. No later event is in the state."""
    due_ms: int
    """When its timer is due, UTC milliseconds; 0: it has none."""
    is_over: bool
    created_at_ms: int
    updated_at_ms: int
    state: Json
    """Canonical bytes of the state, as text; `null` when no event could be folded."""
    seal: bytes


class EntityCommandRow(NamedTuple):
    """A handled command: where the events of its decision are."""

    command_id: str
    aggregate: str
    partition: int
    first_offset: int
    last_offset: int
    at_ms: int


class FoldRow(NamedTuple):
    """The fold that made all rows of a family. A family without one has only rows that no fold could make."""

    family: str
    version: int
    seal: str
    """Name of the key of the seals."""


class DueTimer(NamedTuple):
    """A timer of an aggregate at rest; UTC milliseconds."""

    aggregate: str
    due_ms: int


class EntityPage(NamedTuple):
    """One page of a list, by name. `next` is the token of the next page, empty at the end."""

    rows: tuple[EntityRow, ...]
    next: str


entities = define_table(
    "entities",
    EntityRow,
    # By bytes, so that a prefix is a range of the index whatever the database's collation.
    Index("entities_name", "family", "tenant", text('name COLLATE "C"')),
    Index("entities_quarantined", "aggregate", postgresql_where=text("quarantine <> ''")),
    Index("entities_due", "partition", "due_ms", postgresql_where=text("due_ms > 0")),
    key=["aggregate"],
    fillfactor=70,
    metadata=entity_metadata,
)
entity_commands = define_table(
    "entity_commands",
    EntityCommandRow,
    # Ids are given by senders: those of two tenants may be the same.
    key=["command_id", "aggregate"],
    metadata=entity_metadata,
)
entity_folds = define_table("entity_folds", FoldRow, key=["family"], metadata=entity_metadata)
by_name = entities.c.name.collate("C")


def plain_seal(data: bytes) -> bytes:
    """Seal of an installation without a secret key: it recognises damage, not a careful edit."""
    return sha256(data).digest()


def keyed_seal(key: bytes) -> Seal:
    """Return the seal under a key derived for this purpose."""

    def seal(data: bytes) -> bytes:
        return hmac.digest(key, data, "sha256")

    return seal


def seal_name(seal: Seal) -> str:
    """Return a name of the key of a seal, which does not reveal it."""
    return seal(b"loomlog entity rows").hex()[:16]


def sealed(row: EntityRow, seal: Seal) -> EntityRow:
    """Return the row with its seal."""
    return row._replace(seal=seal(_sealed_bytes(row)))


def verify_seal(row: EntityRow, *seals: Seal) -> bool:
    """Whether the projector wrote the row as it is, under the key of one of these seals."""
    data = _sealed_bytes(row)
    return any(hmac.compare_digest(row.seal, seal(data)) for seal in seals)


def _sealed_bytes(row: EntityRow) -> bytes:
    return json.encode(row[:-1])


async def next_offsets(reader: PostgresReader, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Offsets below which every event of a partition is in the rows; left out: before a projector has claimed it."""
    query = select(cursors.c.partition, cursors.c.next_offset).where(
        cursors.c.topic == topic, one_of(cursors.c.partition, partitions)
    )
    return {int(partition): int(offset) for partition, offset in await reader.fetch(query)}


async def load_entities(reader: PostgresReader, ids: Sequence[str]) -> list[EntityRow]:
    """The rows of those of the aggregates that have one, by full id."""
    rows: list[EntityRow] = []
    for start in range(0, len(ids), IDS_MAX):
        query = select(entities).where(one_of(entities.c.aggregate, storable(ids[start : start + IDS_MAX])))
        rows += [EntityRow._make(row) for row in await reader.fetch(query)]
    return rows


async def find_commands(reader: PostgresReader, ids: Sequence[str]) -> list[EntityCommandRow]:
    """Those of the commands that were handled. An id may have several rows, of different aggregates."""
    rows: list[EntityCommandRow] = []
    for start in range(0, len(ids), IDS_MAX):
        some = storable(ids[start : start + IDS_MAX])
        query = select(entity_commands).where(one_of(entity_commands.c.command_id, some))
        rows += [EntityCommandRow._make(row) for row in await reader.fetch(query)]
    return rows


async def due_timers(
    reader: PostgresReader, partitions: Sequence[int], before_ms: int, limit: int = TIMERS_MAX
) -> dict[int, list[DueTimer]]:
    """The first timers of each of the partitions that are due before a time, in their order."""
    columns = entities.c
    numbers = literal(list(partitions), ARRAY(BigInteger))
    asked = func.unnest(numbers).table_valued("partition").render_derived("asked")
    first = (
        select(columns.aggregate, columns.due_ms)
        .where(columns.partition == asked.c.partition, columns.due_ms > 0, columns.due_ms < before_ms)
        .order_by(columns.due_ms, columns.aggregate)
        .limit(max(1, min(limit, TIMERS_MAX)))
        .lateral("first")
    )
    query = (
        select(asked.c.partition, first.c.aggregate, first.c.due_ms)
        .join_from(asked, first, true())
        .order_by(asked.c.partition, first.c.due_ms, first.c.aggregate)
    )
    timers: dict[int, list[DueTimer]] = {partition: [] for partition in partitions}
    for partition, aggregate, due_ms in await reader.fetch(query):
        timers[partition].append(DueTimer(aggregate, due_ms))
    return timers


async def list_entities(
    reader: PostgresReader, family: str, tenant: Scope, *, prefix: str = "", limit: int = PAGE_MAX, after: str = ""
) -> EntityPage:
    """The aggregates of a family whose names begin with a prefix, by name. `after` is `next` of an earlier page.

    Raises InvalidPageToken for an `after` that this list did not issue.
    """
    limit = max(1, min(limit, PAGE_MAX))
    conditions = [entities.c.family == family, in_scope(entities.c.tenant, tenant)]
    if prefix:
        (clean,) = storable([prefix]) or ("",)
        conditions.append(by_name.startswith(clean, autoescape=True, escape=ESCAPE))
        if not clean:
            return EntityPage((), "")
    position = tuple_(entities.c.tenant, by_name)
    if after:
        after_tenant, after_name = parse_page_token(after, 2)
        conditions.append(position > tuple_(after_tenant, after_name))
    query = select(entities).where(*conditions).order_by(entities.c.tenant, by_name).limit(limit + 1)
    rows = tuple(EntityRow._make(row) for row in await reader.fetch(query))
    if len(rows) <= limit:
        return EntityPage(rows, "")
    return EntityPage(rows[:limit], page_token(rows[limit - 1].tenant, rows[limit - 1].name))


async def count_entities(reader: PostgresReader) -> dict[str, int]:
    """Number of aggregates by family. Reads an index whole."""
    query = select(entities.c.family, func.count()).group_by(entities.c.family).order_by(entities.c.family)
    return {family: int(count) for family, count in await reader.fetch(query)}


async def count_quarantined(reader: PostgresReader) -> int:
    """Number of aggregates that are quarantined or halted."""
    query = select(func.count()).select_from(entities).where(entities.c.quarantine != "")
    return int((await reader.fetch(query))[0][0])


async def list_quarantined(reader: PostgresReader, limit: int = PAGE_MAX) -> list[EntityRow]:
    """The first aggregates that are quarantined or halted, by full id."""
    query = select(entities).where(entities.c.quarantine != "").order_by(entities.c.aggregate)
    rows = await reader.fetch(query.limit(max(1, min(limit, PAGE_MAX))))
    return [EntityRow._make(row) for row in rows]


async def list_folds(reader: PostgresReader) -> list[FoldRow]:
    """The folds that made the rows, by family."""
    rows = await reader.fetch(select(entity_folds).order_by(entity_folds.c.family))
    return [FoldRow._make(row) for row in rows]


def storable(texts: Sequence[str]) -> list[str]:
    """Leave out what no row has, because Postgres takes no such text: the NUL character, lone surrogates."""
    return [one for one in texts if not UNSTORABLE.search(one)]
