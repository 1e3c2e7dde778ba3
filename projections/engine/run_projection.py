"""Projection of runs: writes the records of a poll into the rows of one build, in one transaction.

    claim(partitions)   fence other projectors; returns the offsets to read from
    apply(polled)       read, fold, and write rows and cursors together, or nothing at all

A value that Postgres refuses (a sum over 64 bits, a name too long for an index) must not stop a partition: the poll is
then applied again event by event, and the run whose event is refused is halted like one with an unreadable record.

`apply` may be repeated with the same records at any time: those below the cursor are skipped. After any error nothing
in memory has changed. After a lost connection, connect and claim again, because only the cursor then knows whether the
last transaction was committed. `Fenced` means that another projector has claimed since.

Rows of live runs are in a bounded cache, others are read in the transaction. Commits do not wait for the disk: a crash
of the server loses rows and cursor together, and the events are projected again from the log.

Before: the projector's loop. After: Postgres; every commit notifies positions.py.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import psycopg
from psycopg import sql

from loomlog.connectors.protocols import LogRecord
from loomlog.projections import audit, interrupts, problems, runs, transcript, usage
from loomlog.projections.engine import cursors
from loomlog.projections.engine.batch import (
    Cursor,
    PositionedEvent,
    ProjectionBatch,
    ProjectionItem,
    read_records,
    unwritable_event,
)
from loomlog.projections.engine.builds import Build
from loomlog.projections.engine.fold import Changes, RunProjectionState, fold
from loomlog.projections.engine.writer import TableWriter, make_writer, render_statement, write_all
from loomlog.projections.frames.frame import FRAMES_PER_EVENT
from loomlog.projections.problems import ProblemRow
from loomlog.schemas.codec import Codec
from loomlog.schemas.records import Value, replace

KNOWN_RUNS_MAX = 20_000
"""Cached runs, a few kilobytes each; an uncached run costs a read at its next event."""
REFUSED = (psycopg.DataError, psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex)
"""Errors of Postgres for values it cannot hold. Not UniqueViolation: that would disprove exactly-once."""
BEGIN, COMMIT = b"BEGIN", b"COMMIT"
"""Plain statements, pipelined with the first and the last one of a transaction: two round trips less."""
NOTIFY = b"SELECT pg_notify(%s, %s)"
NOTIFY_BYTES_MAX = 7_900
"""Postgres takes payloads below 8000 bytes; a longer one is sent empty, and listeners read the cursors."""


class ApplyResult(Value, frozen=True, kw_only=True):
    """Result of applying a poll."""

    events: int
    stale: int
    problems: Sequence[ProblemRow]
    oldest_ms: int
    """Time of the oldest record; 0 when nothing was new."""


@cache
def _read_statements(schema: str) -> tuple[bytes, bytes, bytes]:
    """SELECTs by run id: audit rows, run rows, and the calls of each run's latest turn."""
    names = {name: sql.Identifier(schema, name) for name in ("audit", "runs", "transcript")}
    return (
        render_statement(sql.SQL("SELECT * FROM {audit} WHERE run_id = ANY(%s)").format(**names)),
        render_statement(sql.SQL("SELECT * FROM {runs} WHERE run_id = ANY(%s)").format(**names)),
        render_statement(
            sql.SQL(
                "SELECT t.run_id, t.event FROM {runs} r JOIN {transcript} t ON t.run_id = r.run_id "
                "AND t.type = 'tool_call' AND t.seq >= r.memory_reply_seq * {frames} "
                "AND t.seq < (r.memory_reply_seq + 1) * {frames} "
                "WHERE r.run_id = ANY(%s) AND r.memory_reply_seq > 0 ORDER BY t.run_id, t.seq"
            ).format(**names, frames=sql.Literal(FRAMES_PER_EVENT))
        ),
    )


class RunProjection:
    """Writes one build of one topic's projections, over a connection of its own."""

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        build: Build,
        topic: str,
        *,
        owner: str,
        codec: Codec | None = None,
    ) -> None:
        self._connection = connection
        self._build = build
        self.topic = topic
        self._owner = owner
        self._codec = codec
        self._cursors: dict[int, Cursor] = {}
        self._run_states: OrderedDict[str, RunProjectionState] = OrderedDict()
        schema = build.schema
        self._write_runs = make_writer(schema, runs.runs, "replace")
        self._write_audit = make_writer(schema, audit.audit, "replace")
        self._write_transcript = make_writer(schema, transcript.transcript, "insert")
        self._write_usage = make_writer(schema, usage.usage, "add")
        self._write_interrupts = make_writer(schema, interrupts.interrupts, "cover", keep=interrupts.FIRST_WINS)
        self._write_problems = make_writer(schema, problems.problems, "insert")
        self._writers: Sequence[TableWriter] = (
            self._write_runs,
            self._write_audit,
            self._write_transcript,
            self._write_usage,
            self._write_interrupts,
            self._write_problems,
        )
        self._read_audit, self._read_runs, self._read_calls = _read_statements(schema)

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition that was claimed."""
        return {partition: cursor.next_offset for partition, cursor in self._cursors.items()}

    async def claim(self, partitions: Iterable[int]) -> dict[int, int]:
        """Claims the partitions; returns the offsets to read from."""
        self._run_states.clear()
        await self._connection.execute("SET synchronous_commit = off")
        for table in self._writers:
            await table.prepare(self._connection)
        self._cursors = await cursors.claim(self._connection, self._build.schema, self.topic, partitions, self._owner)
        return self.positions

    async def apply(self, polled: Mapping[int, Sequence[LogRecord]]) -> ApplyResult:
        """Projects the records. Writes nothing if it raises Fenced, BuildNotFound or an error of the driver."""
        batch = read_records(self._cursors, polled, self._codec)
        if not batch.new_cursors:
            return ApplyResult(events=0, stale=0, problems=(), oldest_ms=0)
        try:
            run_states, problem_rows = await self._project(batch)
        except REFUSED:
            run_states, problem_rows = await self._project_one_by_one(batch)
        except psycopg.errors.UndefinedTable as error:
            raise cursors.BuildNotFound(f"the build {self._build.schema} has no tables any more: {error}") from error
        self._cursors.update((cursor.partition, cursor) for cursor in batch.new_cursors)
        self._cache_states(run_states)
        return ApplyResult(events=batch.events, stale=batch.stale, problems=problem_rows, oldest_ms=batch.oldest_ms)

    async def _project(self, batch: ProjectionBatch) -> tuple[Mapping[str, RunProjectionState], list[ProblemRow]]:
        """Projects the whole batch at once; returns the run states after it and the problems."""
        async with self._rollback_on_error():
            changes = fold(self.topic, batch, await self._begin(batch))
            await self._write(changes, last=(self._notice(batch.new_cursors), (COMMIT, ())))
        return changes.run_states, changes.problems

    async def _project_one_by_one(
        self, batch: ProjectionBatch
    ) -> tuple[Mapping[str, RunProjectionState], list[ProblemRow]]:
        """Projects the batch event by event, still in one transaction."""
        async with self._rollback_on_error():
            run_states = await self._begin(batch)
            changes = fold(self.topic, ProjectionBatch(problems=batch.problems), {})
            await self._write(changes)
            problem_rows = changes.problems
            for run_id in sorted(batch.runs):
                for item in batch.runs[run_id]:
                    run_states[run_id], item_problems = await self._project_item(run_id, item, run_states)
                    problem_rows += item_problems
            await self._connection.execute(*self._notice(batch.new_cursors))
            await self._connection.execute(COMMIT)
        return run_states, problem_rows

    @asynccontextmanager
    async def _rollback_on_error(self) -> AsyncIterator[None]:
        """Rolls back the transaction that `_begin` began if the block raises."""
        try:
            yield
        except BaseException:
            if not self._connection.closed:
                await self._connection.rollback()
            raise

    async def _project_item(
        self, run_id: str, item: ProjectionItem, run_states: Mapping[str, RunProjectionState]
    ) -> tuple[RunProjectionState, list[ProblemRow]]:
        try:
            return await self._project_one(run_id, item, run_states)
        except REFUSED as error:
            message = error.diag.message_primary or str(error)
            unreadable = unwritable_event(item, message) if isinstance(item, PositionedEvent) else item
        try:
            return await self._project_one(run_id, unreadable, run_states)
        except REFUSED:
            # The halt cannot be written either, because of the run id itself: store the record only.
            row = problems.apply(self.topic, replace(unreadable.problem, run_id=""))
            await write_all(self._connection, [(self._write_problems, [row])])
            return run_states.get(run_id, RunProjectionState()), [row]

    async def _project_one(
        self, run_id: str, item: ProjectionItem, run_states: Mapping[str, RunProjectionState]
    ) -> tuple[RunProjectionState, list[ProblemRow]]:
        async with self._connection.transaction():
            changes = fold(self.topic, ProjectionBatch(runs={run_id: [item]}), run_states)
            await self._write(changes)
        return changes.run_states[run_id], changes.problems

    async def _begin(self, batch: ProjectionBatch) -> dict[str, RunProjectionState]:
        """Begins a transaction, advances the cursors and returns the stored states of the batch's runs.

        One round trip when all runs are cached or new.
        """
        states = {run_id: self._run_states[run_id] for run_id in batch.runs if run_id in self._run_states}
        missing = sorted(run_id for run_id in batch.runs if run_id not in states)
        moves = [(self._cursors[cursor.partition], cursor) for cursor in batch.new_cursors]
        async with self._connection.pipeline():
            await self._connection.execute(BEGIN)
            advanced = await cursors.advance(self._connection, self._build.schema, self.topic, moves)
            result = await self._connection.execute(self._read_audit, (missing,)) if missing else None
        cursors.require_advanced(self.topic, advanced)
        audit_rows = [] if result is None else [audit.AuditRow._make(row) for row in await result.fetchall()]
        return states | await self._read_states(audit_rows) if audit_rows else states

    async def _write(self, changes: Changes, last: Sequence[tuple[bytes, Sequence[Any]]] = ()) -> None:
        rows: Sequence[Sequence[tuple[Any, ...]]] = (
            changes.runs,
            changes.audit,
            changes.transcript,
            changes.usage,
            changes.interrupts,
            changes.problems,
        )
        await write_all(self._connection, list(zip(self._writers, rows, strict=True)), last=last)

    def _notice(self, advanced: Sequence[Cursor]) -> tuple[bytes, Sequence[Any]]:
        payload = self._build.announcement(self.topic, advanced)
        return NOTIFY, (self._build.channel, payload if len(payload) <= NOTIFY_BYTES_MAX else "")

    def _cache_states(self, run_states: Mapping[str, RunProjectionState]) -> None:
        for run_id, run in run_states.items():
            self._run_states.pop(run_id, None)
            if not run.is_over:
                self._run_states[run_id] = run
        while len(self._run_states) > KNOWN_RUNS_MAX:
            self._run_states.popitem(last=False)

    async def _read_states(self, audit_rows: Sequence[audit.AuditRow]) -> dict[str, RunProjectionState]:
        """The stored states of the runs with these audit rows."""
        run_ids = [row.run_id for row in audit_rows]
        async with self._connection.pipeline():
            run_result = await self._connection.execute(self._read_runs, (run_ids,))
            call_result = await self._connection.execute(self._read_calls, (run_ids,))
        states = {row.run_id: RunProjectionState(audit=row) for row in audit_rows}
        calls: dict[str, list[str]] = {}
        for run_id, event in await call_result.fetchall():
            calls.setdefault(run_id, []).append(event)
        for values in await run_result.fetchall():
            row = runs.RunRow._make(values)
            memory = replace(runs.frame_memory(row), calls=transcript.open_calls(calls.get(row.run_id, [])))
            states[row.run_id] = replace(states[row.run_id], run=row, frames=memory)
        return states
