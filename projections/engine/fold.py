"""From the events of a poll to the rows it changes: all table families together, without a database.

What a run was before is a `RunProjectionState`: its row, its place in the log, and the memory of its frames. `fold`
takes those of the runs in the batch and gives new ones with the changes, touching nothing, so that a poll which could
not be written is simply read and folded again.

A run is halted at the first record that is not the next of its sequence or that cannot be read: an invented state would
be worse than an old one. The row says so, the record is kept as a problem, the run's later records are counted, and
every other run goes on.

Before: batch.py. After: run_projection.py writes the changes.
"""

from collections.abc import Mapping, Sequence

from msgspec import field

from loomlog.projections import audit, interrupts, problems, runs, steps, transcript, usage
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
from loomlog.projections.steps import StepRow
from loomlog.projections.transcript import TranscriptRow
from loomlog.projections.usage import UsageRow
from loomlog.schemas.records import Value


class RunProjectionState(Value, frozen=True, kw_only=True):
    """What the rows say about a run."""

    audit: AuditRow | None = None
    run: RunRow | None = None
    frames: FrameMemory = field(default_factory=FrameMemory)

    @property
    def is_over(self) -> bool:
        """Nothing more is expected of the run, so that it need not be kept at hand."""
        return self.audit is not None and (self.audit.status != "open" or self.audit.halted_offset is not None)


class Changes(Value, frozen=True, kw_only=True):
    """The rows of a poll, each list sorted by key and without a key twice."""

    runs: list[RunRow]
    audit: list[AuditRow]
    steps: list[StepRow]
    transcript: list[TranscriptRow]
    usage: list[UsageRow]
    interrupts: list[InterruptRow]
    problems: list[ProblemRow]
    run_states: dict[str, RunProjectionState]
    """The runs of the poll as they are afterwards."""


def fold(topic: str, batch: ProjectionBatch, run_states: Mapping[str, RunProjectionState]) -> Changes:
    """The changes of a batch. `known` has every run of it that has rows."""
    changes = Changes(runs=[], audit=[], steps=[], transcript=[], usage=[], interrupts=[], problems=[], run_states={})
    found = list(batch.problems)
    spent: list[UsageRow] = []
    for run_id in sorted(batch.runs):
        before = run_states.get(run_id, RunProjectionState())
        items = batch.runs[run_id]
        events, problem = _legal_prefix(before.audit, items)
        if problem is not None:
            found.append(problem)
        after = _fold_run(before, run_id, items, events, problem, changes, spent)
        changes.run_states[run_id] = after
        if after.run is not None and after.run != before.run:
            changes.runs.append(after.run)
        if after.audit is not None:
            changes.audit.append(after.audit)
    changes.usage.extend(usage.sum_rows(spent))
    rows = {(row.partition, row.offset, row.kind): row for row in (problems.apply(topic, p) for p in found)}
    changes.problems.extend(rows[key] for key in sorted(rows))
    return changes


def _legal_prefix(
    before: AuditRow | None, items: Sequence[ProjectionItem]
) -> tuple[list[PositionedEvent], ProjectionProblem | None]:
    """The events up to the first that cannot be folded, and what is wrong with that one."""
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
    place = audit.apply(before.audit, events)
    memory = before.frames
    if events:
        session_id = "" if run is None else run.session_id
        rows, memory = transcript.apply(memory, session_id, events)
        changes.transcript.extend(rows)
        stepped = steps.apply(before.frames.calls, events)
        changes.steps.extend(stepped[key] for key in sorted(stepped))
        if run is not None:
            if not is_foreign(run):
                usage_rows.extend(usage.apply(run.user_id, run.agent, events))
            asked = interrupts.apply(run, events)
            changes.interrupts.extend(asked[key] for key in sorted(asked))
    left = items[len(events) :]
    if left:
        partition = left[0].partition if isinstance(left[0], PositionedEvent) else left[0].problem.partition
        place = audit.halt(place, run_id, partition, left)
        if problem is not None and run is not None:
            run = runs.halt(run, problem.error)
    return RunProjectionState(audit=place, run=run, frames=memory)


def is_foreign(run: runs.RunRow) -> bool:
    """Whether what was spent in the run is what a file says that was spent somewhere else."""
    return run.told_events > 0 and not run.restored
