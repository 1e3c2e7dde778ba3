"""Compares the read models with the fold of a run. They must have caught up with it.

Before: services/core/run/history/replay.py folded the run. After: the replay of the API and of the command line.
"""

from loomlog.projections.audit import AuditRow
from loomlog.projections.runs import RunRow
from loomlog.services.core.run.history.replay import ReplayResult
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Compacting, Ended, Parked, Paused


def find_differences(replayed: ReplayResult, audit_row: AuditRow | None, row: RunRow | None) -> list[str]:
    """Return the differences of the read models from the fold, a sentence each."""
    if audit_row is None:
        return ["the read models do not know the run"]
    differences = [
        f"the read models say {name} {theirs}, the log says {ours}"
        for name, ours, theirs in (
            ("last seq", replayed.seq, audit_row.last_seq),
            ("last offset", replayed.last_offset, audit_row.last_offset),
            ("tail digest", replayed.tail_digest.hex(), audit_row.tail_digest.hex()),
        )
        if ours != theirs
    ]
    if audit_row.halted_offset is not None:
        differences.append(
            f"the read models halted the run at offset {audit_row.halted_offset}: {audit_row.withheld} records wait"
        )
    state = replayed.state
    if not isinstance(state, AwaitingModel | AwaitingTools | Parked | Paused | Compacting | Ended):
        return differences
    if row is None:
        return [*differences, "the read models have no row for the run"]
    facts = state.facts
    differences += [
        f"the read models say {name} {theirs}, the fold gives {ours}"
        for name, ours, theirs in (
            ("status", replayed.status, row.status),
            ("turns", facts.turns, row.iterations),
            ("input tokens", facts.usage.input_tokens, row.input_tokens),
            ("output tokens", facts.usage.output_tokens, row.output_tokens),
            ("cost", facts.cost_micros, row.cost_micros),
            ("model errors", facts.model_errors, row.model_errors),
            ("session", facts.session_id, row.session_id),
            ("handle", facts.agent_id, row.agent_id),
            ("definition", facts.definition.sha256, row.definition_sha256),
            ("parked", isinstance(state, Parked), row.parked),
            ("paused", isinstance(state, Paused), row.paused),
        )
        if ours != theirs
    ]
    return differences
