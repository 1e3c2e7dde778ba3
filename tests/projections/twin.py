"""The tables in memory, with the writing policies of run_projection.py: to test a fold without a database.

That the twin and Postgres agree is itself tested (tests/projections/engine/test_run_projection.py compares their rows).
"""

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from loomlog.connectors.protocols import ConsumerRecord
from loomlog.projections import interrupts, runs, transcript, usage
from loomlog.projections.engine.batch import Cursor, read_records
from loomlog.projections.engine.fold import Changes, RunProjectionState, fold
from loomlog.projections.frames.frame import FRAMES_PER_EVENT
from loomlog.schemas.records import replace
from tests.projections.stories import TOPIC


class Twin:
    """One build, and the projector that writes it."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, tuple[Any, ...]]] = {
            name: {} for name in ("runs", "audit", "transcript", "usage", "interrupts", "problems")
        }
        self.known: dict[str, RunProjectionState] = {}
        self.cursors: dict[int, Cursor] = {}

    def apply(self, records: Sequence[ConsumerRecord]) -> Changes:
        """One poll of one or more partitions."""
        polled: dict[int, list[ConsumerRecord]] = {}
        for record in records:
            polled.setdefault(record.partition, []).append(record)
        for partition in polled:
            self.cursors.setdefault(partition, Cursor(partition=partition, next_offset=0, term=-1))
        batch = read_records(self.cursors, polled)
        known = {run_id: self.known.get(run_id) or self._read(run_id) for run_id in batch.aggregates}
        changes = fold(TOPIC, batch, known)
        self._write(changes)
        self.cursors |= {cursor.partition: cursor for cursor in batch.new_cursors}
        self.known |= changes.run_states
        return changes

    def restart(self) -> None:
        """Forgets what is not in the tables."""
        self.known.clear()

    def _read(self, run_id: str) -> RunProjectionState:
        audit_row = self.tables["audit"].get(run_id)
        row = self.tables["runs"].get(run_id)
        if row is None:
            return RunProjectionState(audit=audit_row)
        first = row.memory_reply_seq * FRAMES_PER_EVENT
        calls = [
            frame.event
            for (_, seq), frame in sorted(self.tables["transcript"].items())
            if frame.run_id == run_id and frame.type == "tool_call" and first <= seq < first + FRAMES_PER_EVENT
        ]
        return RunProjectionState(
            audit=audit_row, run=row, frames=replace(runs.frame_memory(row), calls=transcript.open_calls(calls))
        )

    def _write(self, changes: Changes) -> None:
        for row in changes.runs:
            self.tables["runs"][row.run_id] = row
        for row in changes.audit:
            self.tables["audit"][row.run_id] = row
        for row in changes.transcript:
            assert (row.run_id, row.seq) not in self.tables["transcript"], f"{row.run_id} {row.seq} twice"
            self.tables["transcript"][row.run_id, row.seq] = row
        for row in changes.usage:
            key = row[: len(usage.KEY)]
            old = self.tables["usage"].get(key)
            self.tables["usage"][key] = row if old is None else usage.sum_rows([old, row])[0]
        for row in changes.interrupts:
            interrupt_key = (row.run_id, row.interrupt_id)
            before = self.tables["interrupts"].get(interrupt_key)
            self.tables["interrupts"][interrupt_key] = row if before is None else interrupts.merge_rows(before, row)
        for row in changes.problems:
            key = (row.partition, row.offset, row.kind)
            assert key not in self.tables["problems"], f"{key} twice"
            self.tables["problems"][key] = row


def projected(polls: Iterable[Sequence[ConsumerRecord]], *, restart_after: Iterable[int] = ()) -> Twin:
    """The tables after these polls; the projector restarts after the polls with these numbers."""
    twin, restarts = Twin(), set(restart_after)
    for number, poll in enumerate(polls):
        twin.apply(poll)
        if number in restarts:
            twin.restart()
    return twin


def cut(records: Sequence[ConsumerRecord], at: Iterable[int]) -> list[Sequence[ConsumerRecord]]:
    """The records in polls that begin at these positions."""
    edges = [0, *sorted({position for position in at if 0 < position < len(records)}), len(records)]
    return [records[a:b] for a, b in pairwise(edges)]


def cut_at_random(records: Sequence[ConsumerRecord], seed: int) -> list[Sequence[ConsumerRecord]]:
    chance = random.Random(seed)
    return cut(records, [chance.randrange(len(records)) for _ in range(chance.randrange(1, len(records)))])
