"""Projection of a topic: writes the records of a poll into the rows of one build, in one transaction.

    claim(partitions)   fence other projectors; returns the offsets to read from
    apply(polled)       read, fold, and write rows and cursors together, or nothing at all

A value that Postgres refuses (a sum over 64 bits, a name too long for an index) must not stop a partition: the poll is
then applied again event by event, and the aggregate whose event is refused is halted as by an unreadable record.

`apply` may be repeated with the same records at any time: those below the cursor are skipped. After any error nothing
in memory has changed. After a lost connection, connect and claim again, because only the cursor then knows whether the
last transaction was committed. `Fenced` means that another projector has claimed since.

Rows of live aggregates are in a bounded cache, others are read in the transaction. Commits do not wait for the disk: a
crash of the server loses rows and cursor together, and the events are projected again from the log.

Before: the projector's loop. After: run_projection.py and entity_projection.py name tables and fold; every commit
notifies positions.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import psycopg

from loomlog.connectors.protocols import LogRecord
from loomlog.projections import problems
from loomlog.projections.engine import cursors
from loomlog.projections.engine.batch import (
    Cursor,
    EventKinds,
    PositionedEvent,
    ProjectionBatch,
    ProjectionItem,
    read_records,
    unwritable_event,
)
from loomlog.projections.engine.builds import Build
from loomlog.projections.engine.state_cache import StateCache
from loomlog.projections.engine.writer import Statement, TableWriter, write_all
from loomlog.projections.problems import ProblemRow
from loomlog.schemas.codec import Codec
from loomlog.schemas.records import Value, replace

REFUSED = (psycopg.DataError, psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex)
"""Errors of Postgres for values it cannot hold. Not UniqueViolation: that would disprove exactly-once."""
NOTIFY = b"SELECT pg_notify(%s, %s)"
NOTIFY_BYTES_MAX = 7_900
"""Postgres takes payloads below 8000 bytes; a longer one is sent empty, and listeners read the cursors."""

StateT = TypeVar("StateT")


class ApplyResult(Value, frozen=True, kw_only=True):
    """Result of applying a poll."""

    events: int
    stale: int
    problems: Sequence[ProblemRow]
    oldest_ms: int
    """Time of the oldest record; 0 when nothing was new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedBatch(Generic[StateT]):
    """What a batch changes."""

    rows: Sequence[Sequence[tuple[Any, ...]]]
    """By table, in the order of Projection.writers."""
    problems: list[ProblemRow]
    states: Mapping[str, StateT]
    """The stored states of the batch's aggregates after it."""


class Projection(ABC, Generic[StateT]):
    """Writes one build of one topic's projections, over a connection of its own."""

    events: ClassVar[EventKinds]

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        build: Build,
        topic: str,
        *,
        owner: str,
        codec: Codec | None,
        writers: Sequence[TableWriter],
        read: bytes,
        cache: StateCache[StateT],
    ) -> None:
        """`writers`: the tables, problems last. `read`: SELECT of the rows of aggregates, by a list of their ids."""
        self._connection = connection
        self._build = build
        self.topic = topic
        self._owner = owner
        self._codec = codec
        self._cursors: dict[int, Cursor] = {}
        self._writers = writers
        self._read = read
        self._states = cache
        self.kinds = self.events
        """Which records are read."""

    @abstractmethod
    def _fold(self, batch: ProjectionBatch, states: Mapping[str, StateT]) -> FoldedBatch[StateT]:
        """Fold a batch. `states` has every aggregate of it that has rows."""

    @abstractmethod
    async def _read_states(self, rows: Sequence[tuple[Any, ...]]) -> dict[str, StateT]:
        """Return the stored states of the aggregates with these rows, which `read` has selected."""

    def _is_cached(self, state: StateT) -> bool:
        """Whether further events of the aggregate are expected."""
        return True

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition that was claimed."""
        return {partition: cursor.next_offset for partition, cursor in self._cursors.items()}

    async def claim(self, partitions: Iterable[int]) -> dict[int, int]:
        """Claims the partitions; returns the offsets to read from."""
        self._states.clear()
        await self._connection.execute("SET synchronous_commit = off")
        for table in self._writers:
            await table.prepare(self._connection)
        self._cursors = await cursors.claim(self._connection, self._build.schema, self.topic, partitions, self._owner)
        return self.positions

    async def apply(self, polled: Mapping[int, Sequence[LogRecord]]) -> ApplyResult:
        """Projects the records. Writes nothing if it raises Fenced, BuildNotFound or an error of the driver."""
        batch = read_records(self._cursors, polled, self._codec, self.kinds)
        if not batch.new_cursors:
            return ApplyResult(events=0, stale=0, problems=(), oldest_ms=0)
        try:
            states, problem_rows = await self._project(batch)
        except REFUSED:
            states, problem_rows = await self._project_one_by_one(batch)
        except psycopg.errors.UndefinedTable as error:
            raise cursors.BuildNotFound(f"the build {self._build.schema} has no tables any more: {error}") from error
        self._cursors.update((cursor.partition, cursor) for cursor in batch.new_cursors)
        self._cache_states(states)
        return ApplyResult(events=batch.events, stale=batch.stale, problems=problem_rows, oldest_ms=batch.oldest_ms)

    async def _project(self, batch: ProjectionBatch) -> tuple[Mapping[str, StateT], list[ProblemRow]]:
        """Projects the whole batch at once; returns the states after it and the problems."""
        async with cursors.rollback_on_error(self._connection):
            folded = self._fold(batch, await self._begin(batch))
            await self._write(folded, last=(self._notice(batch.new_cursors), (cursors.COMMIT, ())))
        return folded.states, folded.problems

    async def _project_one_by_one(self, batch: ProjectionBatch) -> tuple[Mapping[str, StateT], list[ProblemRow]]:
        """Projects the batch event by event, still in one transaction."""
        async with cursors.rollback_on_error(self._connection):
            states = await self._begin(batch)
            folded = self._fold(ProjectionBatch(problems=batch.problems), {})
            await self._write(folded)
            problem_rows = folded.problems
            for aggregate in sorted(batch.aggregates):
                for item in batch.aggregates[aggregate]:
                    problem_rows += await self._project_item(aggregate, item, states)
            await self._connection.execute(*self._notice(batch.new_cursors))
            await self._connection.execute(cursors.COMMIT)
        return states, problem_rows

    async def _project_item(self, aggregate: str, item: ProjectionItem, states: dict[str, StateT]) -> list[ProblemRow]:
        """Projects an item and puts the state after it into `states`; returns the problems."""
        try:
            return await self._project_one(aggregate, item, states)
        except REFUSED as error:
            message = error.diag.message_primary or str(error)
            unreadable = unwritable_event(item, message) if isinstance(item, PositionedEvent) else item
        try:
            return await self._project_one(aggregate, unreadable, states)
        except REFUSED:
            # The halt cannot be written either, because of the id itself: store the record only.
            row = problems.apply(self.topic, replace(unreadable.problem, run_id=""))
            await write_all(self._connection, [(self._writers[-1], [row])])
            return [row]

    async def _project_one(self, aggregate: str, item: ProjectionItem, states: dict[str, StateT]) -> list[ProblemRow]:
        async with self._connection.transaction():
            folded = self._fold(ProjectionBatch(aggregates={aggregate: [item]}), states)
            await self._write(folded)
        states[aggregate] = folded.states[aggregate]
        return folded.problems

    async def _begin(self, batch: ProjectionBatch) -> dict[str, StateT]:
        """Begins a transaction, advances the cursors and returns the stored states of the batch's aggregates.

        One round trip when all aggregates are cached or new.
        """
        states = {name: state for name in batch.aggregates if (state := self._states.find(name)) is not None}
        missing = sorted(name for name in batch.aggregates if name not in states)
        moves = [(self._cursors[cursor.partition], cursor) for cursor in batch.new_cursors]
        async with self._connection.pipeline():
            await self._connection.execute(cursors.BEGIN)
            advanced = await cursors.advance(self._connection, self._build.schema, self.topic, moves)
            result = await self._connection.execute(self._read, (missing,)) if missing else None
        cursors.require_advanced(self.topic, advanced)
        rows = [] if result is None else await result.fetchall()
        return states | await self._read_states(rows) if rows else states

    async def _write(self, folded: FoldedBatch[StateT], last: Sequence[Statement] = ()) -> None:
        await write_all(self._connection, list(zip(self._writers, folded.rows, strict=True)), last=last)

    def _notice(self, advanced: Sequence[Cursor]) -> Statement:
        payload = self._build.announcement(self.topic, advanced)
        return NOTIFY, (self._build.channel, payload if len(payload) <= NOTIFY_BYTES_MAX else "")

    def _cache_states(self, states: Mapping[str, StateT]) -> None:
        for aggregate, state in states.items():
            if not self._is_cached(state):
                self._states.remove(aggregate)
        self._states.put({name: state for name, state in states.items() if self._is_cached(state)})
