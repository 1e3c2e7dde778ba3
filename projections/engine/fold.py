"""Fold of a poll's events into the rows they change: all table families together, without a database.

The prior state of a run is a `RunProjectionState`: its row, its audit row and its frame memory. `fold` takes the states
of the runs in the batch and returns new ones with the changes. It mutates nothing, so a poll that could not be written
is read and folded again.

A run is halted at the first record that is out of sequence or unreadable: an invented state would be worse than an old
one. Its row says so, the record is stored as a problem, the run's later records are counted, and every other run
continues.

Before: batch.py. After: run_projection.py writes the changes.
"""

from collections.abc import Mapping, Sequence

from msgspec import field

from loomlog.projections import audit, interrupts, problems, runs, transcript, usage
from loomlog.projections.audit import AuditRow
from loomlog.projections.engine.batch import (
    PositionedEvent,
    ProjectionBatch,
    ProjectionItem,
    ProjectionProblem,
    broken_sequence_problem,
)
from loomlog.projections.frames.frame import FrameMemory
from loomlog.projections.interrupts import InterruptRow
from loomlog.projections.problems import ProblemRow
from loomlog.projections.runs import RunRow
from loomlog.projections.transcript import TranscriptRow
from loomlog.projections.usage import UsageRow
from loomlog.schemas.records import Value


class RunProjectionState(Value, frozen=True, kw_only=True):
    """The stored state of a run."""

    audit: AuditRow | None = None
    run: RunRow | None = None
    frames: FrameMemory = field(default_factory=FrameMemory)

    @property
    def is_over(self) -> bool:
        """Whether the run expects no further events, so that its state need not be cached."""
        return self.audit is not None and (self.audit.status != "open" or self.audit.halted_offset is not None)


class Changes(Value, frozen=True, kw_only=True):
    """The rows a poll changes, each list sorted by key and without duplicate keys."""

    runs: list[RunRow]
    audit: list[AuditRow]
    transcript: list[TranscriptRow]
    usage: list[UsageRow]
    interrupts: list[InterruptRow]
    problems: list[ProblemRow]
    run_states: dict[str, RunProjectionState]
    """States of the batch's runs after the fold."""


def fold(topic: str, batch: ProjectionBatch, run_states: Mapping[str, RunProjectionState]) -> Changes:
    """The changes of a batch. `run_states` has every run of the batch that has rows."""
    changes = Changes(runs=[], audit=[], transcript=[], usage=[], interrupts=[], problems=[], run_states={})
    projection_problems = list(batch.problems)
    usage_rows: list[UsageRow] = []
    for run_id in sorted(batch.aggregates):
        before = run_states.get(run_id, RunProjectionState())
        items = batch.aggregates[run_id]
        events, problem = _legal_prefix(before.audit, items)
        if problem is not None:
            projection_problems.append(problem)
        after = _fold_run(before, run_id, items, events, problem, changes, usage_rows)
        changes.run_states[run_id] = after
        if after.run is not None and after.run != before.run:
            changes.runs.append(after.run)
        if after.audit is not None:
            changes.audit.append(after.audit)
    changes.usage.extend(usage.sum_rows(usage_rows))
    problem_rows = (problems.apply(topic, problem) for problem in projection_problems)
    by_key = {(row.partition, row.offset, row.kind): row for row in problem_rows}
    changes.problems.extend(by_key[key] for key in sorted(by_key))
    return changes


def _legal_prefix(
    before: AuditRow | None, items: Sequence[ProjectionItem]
) -> tuple[list[PositionedEvent], ProjectionProblem | None]:
    """The events before the first that cannot be folded, and the problem with that one."""
    if before is not None and before.halted_offset is not None:
        return [], None
    last_seq = 0 if before is None else before.last_seq
    events: list[PositionedEvent] = []
    for item in items:
        if not isinstance(item, PositionedEvent):
            return events, item.problem
        last_seq += 1
        if item.envelope.seq != last_seq:
            return events, broken_sequence_problem(item, last_seq)
        events.append(item)
    return events, None


def _fold_run(
    before: RunProjectionState,
    run_id: str,
    items: Sequence[ProjectionItem],
    events: Sequence[PositionedEvent],
    problem: ProjectionProblem | None,
    changes: Changes,
    usage_rows: list[UsageRow],
) -> RunProjectionState:
    run = runs.apply(before.run, events)
    audit_row = audit.apply(before.audit, events)
    memory = before.frames
    if events:
        session_id = "" if run is None else run.session_id
        rows, memory = transcript.apply(memory, session_id, events)
        changes.transcript.extend(rows)
        if run is not None:
            if not is_foreign(run):
                usage_rows.extend(usage.apply(run.user_id, run.agent, events))
            interrupt_rows = interrupts.apply(run, events)
            changes.interrupts.extend(interrupt_rows[key] for key in sorted(interrupt_rows))
    withheld = items[len(events) :]
    if withheld:
        first = withheld[0]
        partition = first.partition if isinstance(first, PositionedEvent) else first.problem.partition
        audit_row = audit.halt(audit_row, run_id, partition, withheld)
        if problem is not None and run is not None:
            run = runs.halt(run, problem.error)
    return RunProjectionState(audit=audit_row, run=run, frames=memory)


def is_foreign(run: runs.RunRow) -> bool:
    """Whether the run's usage was reported by an import file and incurred elsewhere."""
    return run.told_events > 0 and not run.restored
