"""The builds of the projections (blue and green) as values, and the audit index over the live one.

Builds stand in for loomlog.projections.engine.builds.Builds, whose statements are about schemas and views; a switch
takes effect at once and not at the commit.
"""

from collections.abc import Callable, Iterable
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.projections.engine.builds import (
    BUILDING,
    COMPARED,
    LIVE,
    PREVIOUS,
    RUN_TABLES,
    VERSION,
    Build,
    BuildRow,
    StatusRow,
    TableHash,
    TableSet,
)
from loomlog.services.runtime.run.run_index import EndedRun
from tests.simulation.statements import COLUMNS, Row
from tests.simulation.store import PREFIX, Connection, Store


class SimulatedBuilds:
    """Stands in for loomlog.projections.engine.builds.Builds."""

    def __init__(self, connection: Connection, prefix: str = "", tables: TableSet = RUN_TABLES) -> None:
        self._connection = connection
        self._store = connection._store
        assert prefix in ("", PREFIX)
        assert tables is RUN_TABLES

    def build(self, number: int) -> Build:
        return Build(prefix=PREFIX, number=number)

    async def prepare(self) -> None:
        await self._connection.reach("tables")
        if not self._store.builds:
            self._store.builds.append(BuildRow(1, LIVE, VERSION, None, None))

    async def live(self) -> BuildRow:
        await self._connection.reach("tables")
        return next(row for row in self._store.builds if row.state == LIVE)

    async def reserve_projecting(self, topic: str) -> bool:
        return await self._reserve(f"projector {topic}")

    async def reserve_rebuild(self) -> bool:
        return await self._reserve("rebuild")

    async def _reserve(self, name: str) -> bool:
        await self._connection.reach("tables")
        return self._store.advisory.setdefault(name, self._connection) is self._connection

    async def make(self) -> Build:
        await self._connection.reach("tables")
        store = self._store
        for row in [row for row in store.builds if row.state == BUILDING]:
            self._drop(row.number)
        number = max(row.number for row in store.builds) + 1
        store.builds.append(BuildRow(number, BUILDING, VERSION, None, None))
        store.dropped.discard(self.build(number).schema)
        return self.build(number)

    async def positions(self, number: int, topic: str, *, lock: bool = False) -> dict[int, int]:
        await self._connection.reach("tables")
        schema = self.build(number).schema
        if lock:
            for key in sorted(self._store.table(schema, "cursors")):
                await self._store.lock((schema, "cursors", key), self._connection)
        return {key[1]: row[2] for key, row in self._connection.tables.get((schema, "cursors"), {}).items()}

    async def table_hashes(
        self, number: int, families: frozenset[str] | None = None, *, expired_before_ms: int = 0
    ) -> dict[str, TableHash]:
        """The rows themselves stand for their hash; none of these tables has rows that expire."""
        assert families is None
        await self._connection.reach("tables")
        schema = self.build(number).schema
        return {
            name: TableHash(len(rows), str(sorted(rows.items())))
            for name in COMPARED
            for rows in (self._connection.tables.get((schema, name), {}),)
        }

    async def switch(self, build: Build) -> None:
        await self._connection.reach("tables")
        states = {LIVE: PREVIOUS}
        self._store.builds = [
            row._replace(state=LIVE if row.number == build.number else states.get(row.state, row.state))
            for row in self._store.builds
        ]

    async def drop_unused(self) -> list[int]:
        await self._connection.reach("tables")
        previous = [row.number for row in self._store.builds if row.state == PREVIOUS]
        for number in previous[:-1]:
            self._drop(number)
        return previous[:-1]

    async def write_status(self, status: StatusRow) -> None:
        await self._connection.reach("tables")

    def _drop(self, number: int) -> None:
        store = self._store
        store.builds = [row for row in store.builds if row.number != number]
        store.dropped.add(self.build(number).schema)
        store.tables = {place: rows for place, rows in store.tables.items() if place[0] != self.build(number).schema}


class StoredIndex:
    """The audit index over the live build (protocol loomlog.services.runtime.run.run_index.RunIndex)."""

    def __init__(self, store: Store, reach: Callable[[str], Any]) -> None:
        self._store = store
        self._reach = reach

    async def next_offset(self, partition: int) -> int:
        await self._reach("index")
        result = self._store.positions(self._store.live).get(partition) if self._store.live else None
        if result is None:
            raise Transient(f"the projections have not begun with partition {partition}", kind="unavailable")
        return result

    async def find_run(self, run_id: str) -> EndedRun | None:
        await self._reach("index")
        row = self._store.table(self._store.live, "audit").get((run_id,))
        return _past(row) if row is not None else None

    async def last_run_of_session(self, session_id: str) -> EndedRun | None:
        await self._reach("index")
        rows = [dict(zip(COLUMNS["audit"], row, strict=True)) for row in self._audit()]
        result = [row for row in rows if row["session_id"] == session_id and row["status"] != "refused"]
        return _past(tuple(max(result, key=lambda row: row["first_offset"]).values())) if result else None

    def _audit(self) -> Iterable[Row]:
        return self._store.table(self._store.live, "audit").values()


def _past(values: Row) -> EndedRun:
    row = dict(zip(COLUMNS["audit"], values, strict=True))
    return EndedRun(
        run_id=row["run_id"],
        tenant=row["tenant"],
        session_id=row["session_id"],
        partition=row["partition"],
        first_offset=row["first_offset"],
        last_offset=row["last_offset"],
        ended_at_ms=row["ended_at_ms"] or 0,
    )
