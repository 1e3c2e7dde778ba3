"""Projection of runs: their tables, and how the stored state of a run is read back.

Before: projection.py reads the records. After: fold.py; Postgres.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import psycopg
from psycopg import sql

from loomlog.projections import audit, interrupts, problems, runs, transcript, usage
from loomlog.projections.engine.batch import RUN_EVENTS, ProjectionBatch
from loomlog.projections.engine.builds import Build
from loomlog.projections.engine.fold import RunProjectionState, fold
from loomlog.projections.engine.projection import FoldedBatch, Projection
from loomlog.projections.engine.state_cache import StateCache
from loomlog.projections.engine.writer import make_writer, render_statement
from loomlog.projections.frames.frame import FRAMES_PER_EVENT
from loomlog.schemas.codec import Codec
from loomlog.schemas.records import replace

KNOWN_RUNS_MAX = 20_000
"""Cached runs, a few kilobytes each; an uncached run costs a read at its next event."""


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


class RunProjection(Projection[RunProjectionState]):
    """Writes one build of the projections of runs."""

    events = RUN_EVENTS

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        build: Build,
        topic: str,
        *,
        owner: str,
        codec: Codec | None = None,
    ) -> None:
        schema = build.schema
        read_audit, self._read_runs, self._read_calls = _read_statements(schema)
        super().__init__(
            connection,
            build,
            topic,
            owner=owner,
            codec=codec,
            writers=(
                make_writer(schema, runs.runs, "replace"),
                make_writer(schema, audit.audit, "replace"),
                make_writer(schema, transcript.transcript, "insert"),
                make_writer(schema, usage.usage, "add"),
                make_writer(schema, interrupts.interrupts, "cover", keep=interrupts.FIRST_WINS),
                make_writer(schema, problems.problems, "insert"),
            ),
            read=read_audit,
            cache=StateCache(entries_max=KNOWN_RUNS_MAX),
        )

    def _fold(
        self, batch: ProjectionBatch, states: Mapping[str, RunProjectionState]
    ) -> FoldedBatch[RunProjectionState]:
        changes = fold(self.topic, batch, states)
        return FoldedBatch(
            rows=(
                changes.runs,
                changes.audit,
                changes.transcript,
                changes.usage,
                changes.interrupts,
                changes.problems,
            ),
            problems=changes.problems,
            states=changes.run_states,
        )

    def _is_cached(self, state: RunProjectionState) -> bool:
        return not state.is_over

    async def _read_states(self, rows: Sequence[tuple[Any, ...]]) -> dict[str, RunProjectionState]:
        audit_rows = [audit.AuditRow._make(row) for row in rows]
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
