"""What rules with the reach tree count: each run keeps its own part, and the root the sum of all.

    a run below decides    ApprovalDecided, InterruptionClosed, ModelReplied ...    its part changes
    with it, at the root   TreeCounted                                              by the same amounts

The two decisions are one: they are in the log together or not at all (services/stream/partition/partition.py), so no
run can be permitted a call that its root has not counted. All runs of a tree have one owner, which decides one thing
after the other, so each decision sees all earlier ones. A call that waits for people is counted as pending from the
moment it is asked about, and becomes allowed or vanishes with its approval.

A run that is a root has the totals of its tree in its own facts. Without rules that count over trees there is no event
and no cost.

Before: decide.py, and the loop, which passes the root's totals to a decision below it. After: the root's state.
"""

from collections.abc import Iterable

from loomlog.schemas.generated.run_events import TreeCounted
from loomlog.schemas.generated.values import TreeTotal
from loomlog.schemas.records import replace
from loomlog.services.core.approvals.tree_totals import TreeTotals, add_totals, subtract_totals
from loomlog.services.core.run.commands import ModelAnswered, RunCommand
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Absent, LiveState, Refused, State


def counting_root(state: State) -> str:
    """Return the root that counts what this run does; empty for a root, and for a run without rules."""
    if isinstance(state, Absent | Refused):
        return ""
    facts = state.facts
    return facts.parent.root_run_id if facts.parent is not None and facts.definition.approvals else ""


def tree_totals(facts: RunFacts) -> TreeTotals:
    """Return the totals of the tree with this root."""
    return TreeTotals(totals=facts.tree, spent_micros=facts.cost_micros + facts.tree_spent_micros)


def with_tree_totals(order: RunCommand, root: State | None) -> RunCommand:
    """Return the command with the totals of the root, if it needs them; None: the root is not live."""
    if not isinstance(order, ModelAnswered) or root is None or not _counts(root):
        return order
    assert isinstance(root, LiveState)
    if not order.cases and not any(verdict.tree_amounts for verdict in order.verdicts):
        return order
    return replace(order, tree=tree_totals(root.facts))


def count_in_root(before: State, after: State, root: State) -> TreeCounted | None:
    """Return the event of the root for a decision of a run below it; None if the decision changes nothing it counts.

    Imported histories are counted already: their roots have the events.
    """
    if isinstance(before, Absent | Refused) or isinstance(after, Absent | Refused) or not _counts(root):
        return None
    if before.facts.imported_events or after.facts.imported_events:
        return None
    spent = after.facts.cost_micros - before.facts.cost_micros
    if spent and not any(policy.reads_tree_cost for policy in after.facts.definition.approvals):
        spent = 0
    if after.facts.tree is before.facts.tree and not spent:
        return None
    changes = subtract_totals(after.facts.tree, before.facts.tree)
    return TreeCounted(run_id=after.facts.run_id, changes=changes, spent_micros=spent) if changes or spent else None


def _counts(root: State) -> bool:
    """Whether a root can have a further event."""
    return isinstance(root, LiveState) and not root.facts.imported_events


def with_changes(facts: RunFacts, changes: Iterable[TreeTotal], spent_micros: int = 0) -> RunFacts:
    """Return the facts after changes of what a run, or with a root its tree, is counted."""
    return replace(
        facts, tree=add_totals(facts.tree, changes), tree_spent_micros=facts.tree_spent_micros + spent_micros
    )
