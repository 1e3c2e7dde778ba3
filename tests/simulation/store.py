"""A small Postgres: what the projector's statements mean, and what may go wrong with them.

It understands the statements that projections/engine/run_projection.py, cursors.py and engine/writer.py send
(statements.py). Transactions are buffers over what is committed; a row of `cursors` is locked from its first change to
the end of the transaction, and a row that is changed is looked at again once the lock is there (READ COMMITTED).

A connection dies with its process at once, as a socket does; a paused process keeps its locks.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from loomlog.projections.engine.builds import LIVE, BuildRow
from loomlog.projections.transcript import TranscriptRow
from tests.simulation.faults import MOST_DELAY_S, Fates
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.statements import (
    COLUMNS,
    Insert,
    Key,
    Row,
    Update,
    insert_in,
    rows_in,
    staging_in,
    statement_in,
    text_of,
)

Place = tuple[str, str, Key]
"""Schema, table and key of a row."""
Strike = Callable[[str, float], None]
PREFIX = "loom"
COMMIT_WAYS = 4.0
"""A commit takes so many times as long as another way to the server, as with a slow disk: a transaction is longer under
way, so that more can happen meanwhile, and takes up the events of that time instead of a third as many."""


@dataclass(slots=True)
class Store:
    """What is committed, who holds which lock, which builds there are. `committed` hears of every commit."""

    loop: VirtualLoop
    tables: dict[tuple[str, str], dict[Key, Row]] = field(default_factory=dict)
    builds: list[BuildRow] = field(default_factory=list)
    advisory: dict[str, "Connection"] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    """Schemas of builds that are no more."""
    committed: Callable[["Connection", Mapping[Place, Row]], None] = lambda connection, changes: None
    connections: list["Connection"] = field(default_factory=list)
    _locks: dict[Place, "Connection"] = field(default_factory=dict)
    _waiting: list[tuple[Process, "asyncio.Future[None]"]] = field(default_factory=list)

    def table(self, schema: str, name: str) -> dict[Key, Row]:
        return self.tables.setdefault((schema, name), {})

    @property
    def live(self) -> str:
        """The schema that readers see; empty before the first build."""
        return next((f"{PREFIX}_{row.number}" for row in self.builds if row.state == LIVE), "")

    def positions(self, schema: str) -> dict[int, int]:
        """Next offset of each partition in a build."""
        return {key[1]: row[2] for key, row in self.table(schema, "cursors").items()}

    def connect(self, process: Process, fates: Fates, strike: Strike) -> "Connection":
        connection = Connection(self, process, fates, strike)
        self.connections.append(connection)
        return connection

    def disconnect(self, process: Process) -> None:
        """The process is dead: the server rolls back and forgets its connections."""
        for connection in [c for c in self.connections if c.process is process]:
            connection.end()

    async def lock(self, place: Place, connection: "Connection") -> None:
        """Waits until the row is free or its own."""
        while self._locks.setdefault(place, connection) is not connection:
            waiter = self.loop.create_future()
            self._waiting.append((connection.process, waiter))
            await waiter

    def release(self, connection: "Connection") -> None:
        """The transaction is over: its locks are free, and whoever waits looks again."""
        if connection in self._locks.values():
            self._locks = {place: holder for place, holder in self._locks.items() if holder is not connection}
        waiting, self._waiting = self._waiting, []
        for process, waiter in waiting:
            self.loop.call_for(process, 0.0, _go_on, waiter)


class Answer:
    """What psycopg calls a cursor."""

    def __init__(self, rows: Sequence[Row] = (), rowcount: int = 0) -> None:
        self._rows = list(rows)
        self.rowcount = rowcount or len(self._rows)

    async def fetchall(self) -> list[Row]:
        return self._rows

    async def fetchone(self) -> Row | None:
        return self._rows[0] if self._rows else None


class Copy:
    """A COPY under way. What is formatted is kept as rows and never has to be sent."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    @property
    def formatter(self) -> "Copy":
        return self

    def write_row(self, row: Row) -> None:
        self.rows.append(tuple(row))


class Connection:
    """A connection in autocommit mode: the part of psycopg.AsyncConnection that the projections use."""

    def __init__(self, store: Store, process: Process, fates: Fates, strike: Strike) -> None:
        self.process = process
        self._store = store
        self._fates = fates
        self._strike = strike
        self._depth = 0
        self._changes: dict[Place, Row] = {}
        self._staged: dict[str, list[Row]] = {}
        """Rows of temporary tables, until the end of the transaction."""
        self._is_open = True
        self._fate = ("", 0.0)
        """Of what was sent last."""
        self._seen: dict[tuple[str, str], dict[Key, Row]] | None = None
        """The tables as they were when a REPEATABLE READ transaction began."""

    @property
    def tables(self) -> Mapping[tuple[str, str], Mapping[Key, Row]]:
        """What is committed, as this transaction may see it."""
        return self._store.tables if self._seen is None else self._seen

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Closed from either side."""
        self._is_open = False
        self._changes.clear()
        store = self._store
        store.connections = [c for c in store.connections if c is not self]
        store.advisory = {name: holder for name, holder in store.advisory.items() if holder is not self}
        store.release(self)

    def transaction(self) -> "Transaction":
        """All or nothing; an inner one is a savepoint."""
        return Transaction(self)

    def pipeline(self) -> "Nothing":
        """Statements travel together; what is simulated does not depend on it."""
        return Nothing(self)

    def cursor(self) -> "Nothing":
        """Cursors have no state of their own here."""
        return Nothing(self)

    async def execute(self, query: Any, parameters: Sequence[Any] = ()) -> Answer:
        if not self._reaches("tables"):
            await self._meet()
        asked = statement_in(text_of(query))
        if asked.kind == "nothing":
            return Answer()
        if asked.kind == "begin":
            self._depth += 1
            return Answer()
        if asked.kind == "commit":
            self._depth -= 1
            await self._commit()
            return Answer()
        if asked.kind == "snapshot":
            self._seen = {place: dict(rows) for place, rows in self._store.tables.items()}
            return Answer()
        schema, name = asked.table
        self._must_exist(schema)
        if asked.update is not None:
            answer = await self._update(asked.update, parameters)
            if not self._depth:
                self._over()
            return answer
        if asked.insert is not None:
            self._insert(
                asked.insert, self._staged.get(asked.staging, ()) if asked.staging else rows_in(name, parameters[0])
            )
            return Answer()
        if asked.kind == "claim":
            return await self._claim(asked.table, parameters)
        if asked.kind == "open calls":
            return Answer(self._open_calls(schema, parameters[0]))
        result = [self._read(schema, name, (run_id,)) for run_id in parameters[0]]
        return Answer([row for row in result if row is not None])

    async def rollback(self) -> None:
        """What the transaction under way has changed is gone."""
        if self._depth:
            self._depth = 0
            self._changes.clear()
            self._over()

    @property
    def closed(self) -> bool:
        return not self._is_open

    @asynccontextmanager
    async def copy(self, query: Any) -> AsyncIterator["Copy"]:
        """COPY FROM STDIN into a table, or into a temporary one."""
        if not self._reaches("tables"):
            await self._meet()
        text, copy = text_of(query), Copy()
        yield copy
        staging = staging_in(text)
        if staging:
            self._staged.setdefault(staging, []).extend(copy.rows)
        else:
            self._insert(insert_in(text), copy.rows)

    def _insert(self, insert: Insert, rows: Iterable[Row]) -> None:
        schema, name, key_of, merge = insert.schema, insert.name, insert.key_of, insert.merge
        self._must_exist(schema)
        there, changes = self._store.table(schema, name), self._changes
        for row in rows:
            key = key_of(row)
            place = (schema, name, key)
            old = changes.get(place) or there.get(key)
            if old is None:
                changes[place] = tuple(row)
            elif merge is None:
                raise psycopg.errors.UniqueViolation(f"{name}: the key {key} is there already")
            else:
                changes[place] = merge(old, row)
        if not self._depth:
            self._apply()

    # --- the statements -----------------------------------------------------------------------------------------------

    async def _update(self, update: Update, parameters: Sequence[Any]) -> Answer:
        expected = parameters[len(update.sets) :]
        place = (update.schema, update.name, tuple([expected[at] for at in update.key]))
        await self._store.lock(place, self)
        row = self._read(*place)
        if row is None or any(row[at] != value for at, value in zip(update.where, expected, strict=True)):
            return Answer()
        changed = list(row)
        for at, value in zip(update.sets, parameters, strict=False):
            changed[at] = value
        self._write(place, tuple(changed))
        return Answer(rowcount=1)

    async def _claim(self, table: tuple[str, str], parameters: Sequence[Any]) -> Answer:
        topic, partition, owner = parameters
        place = (*table, (topic, partition))
        await self._store.lock(place, self)
        old = self._read(*place)
        next_offset, term, epoch = (0, -1, 0) if old is None else old[2:5]
        self._write(place, (topic, partition, next_offset, term, epoch + 1, owner))
        return Answer([(next_offset, term, epoch + 1)])

    def _open_calls(self, schema: str, run_ids: Sequence[str]) -> list[Row]:
        rows: list[Row] = []
        at = COLUMNS["runs"].index("memory_reply_seq")
        for run_id in sorted(run_ids):
            run = self._read(schema, "runs", (run_id,))
            if run is None or not run[at]:
                continue
            for values in self._store.table(schema, "transcript").values():
                row = TranscriptRow._make(values)
                if row.run_id == run_id and row.type == "tool_call" and row.seq // 256 == run[at]:
                    rows.append((row.run_id, row.event, row.seq))
        return [row[:2] for row in sorted(rows, key=lambda row: (row[0], row[2]))]

    def _read(self, schema: str, name: str, key: Key) -> Row | None:
        place = (schema, name, key)
        row = self._changes.get(place)
        return row if row is not None else self._store.table(schema, name).get(key)

    def _write(self, place: Place, row: Row) -> None:
        self._changes[place] = row
        if not self._depth:
            self._apply()

    async def _commit(self) -> None:
        await asyncio.sleep(COMMIT_WAYS * self._fates.latency_s())
        fate = await self.reach("commit")
        self._apply()
        self._over()
        await asyncio.sleep(COMMIT_WAYS * self._fates.latency_s())
        if fate == "commit lost":
            self.end()
            raise psycopg.OperationalError("the connection broke after the commit")

    def _over(self) -> None:
        self._seen = None
        self._staged.clear()
        self._store.release(self)

    def _apply(self) -> None:
        changes, self._changes = self._changes, {}
        for (schema, name, key), row in changes.items():
            if schema not in self._store.dropped:
                self._store.table(schema, name)[key] = row
        self._store.committed(self, changes)

    def _must_exist(self, schema: str) -> None:
        if schema in self._store.dropped:
            raise psycopg.errors.UndefinedTable(f"the schema {schema} does not exist")

    async def reach(self, kind: str) -> str:
        """On the way to the server; gives the fate that was met. Raises what a broken connection raises."""
        return "" if self._reaches(kind) else await self._meet()

    def _reaches(self, kind: str) -> bool:
        """Whether what is sent reaches the server and nothing happens on the way; most do, and wait for nothing."""
        self._fate = self._fates.draw(kind)
        return self._is_open and not self._fate[0]

    async def _meet(self) -> str:
        """What happens on the way to the server. Raises what a broken connection raises."""
        fate, amount = self._fate
        match fate:
            case "slow":
                await asyncio.sleep(MOST_DELAY_S * amount)
            case "crash" | "pause":
                self._strike(fate, amount)
                await asyncio.sleep(self._fates.latency_s())
            case "connection lost":
                self.end()
        if not self._is_open:
            raise psycopg.OperationalError("the connection is broken")
        return fate


def _go_on(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class Transaction:
    """A transaction of a connection, or a savepoint in one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._before: dict[Place, Row] = {}

    async def __aenter__(self) -> None:
        connection = self._connection
        self._before = dict(connection._changes)
        connection._depth += 1

    async def __aexit__(self, kind: object, *_: object) -> None:
        connection = self._connection
        connection._depth -= 1
        if kind is not None:
            connection._changes = self._before
            if not connection._depth:
                connection._over()
        elif not connection._depth:
            await connection._commit()


class Nothing:
    """Something that is entered and left, and nothing more."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> Connection:
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        """Nothing to leave."""
