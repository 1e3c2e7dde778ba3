"""Totals over the runs of a tree, as their root keeps them, and what rules expect of them. Pure.

A rule with the reach tree is evaluated in two steps, because arguments are in plaintext beside the model's reply only,
and totals are certain in the moment of the decision only:

    evaluation.py         arguments, names   -->  cases: a verdict, and guards that totals must meet for it
    here, while deciding  cases, totals      -->  the verdict

Of a total two numbers are known: what was allowed, and how much more it is if all calls that wait for people are
approved. A rule that denies or asks is met if one number between them meets it, a rule that allows if all do. So two
calls that wait at the same time cannot both pass a limit that only one of them may.

Before: evaluation.py. After: services/core/run/interrupts/tree_counts.py.
"""

from collections.abc import Iterable, Sequence

from loomlog.schemas.approval_policy import ALLOW, ASK, DENY
from loomlog.schemas.generated.values import CallVerdict, TreeGuard, TreeTotal, VerdictCase
from loomlog.schemas.records import Value, replace

TOTAL_MAX = 1 << 62
"""Where totals stop, and stay: what cannot be read counts as AMOUNT_MAX, and 512 of these are as much."""
STRICTNESS = {ALLOW: 0, ASK: 1, DENY: 2}
NOT_COUNTED = "the root of this run cannot count the call, so the rules that count over the tree cannot hold"


class TreeTotals(Value, frozen=True, kw_only=True):
    """What the root of a tree knows: totals by meter, and what the models of all its runs have cost."""

    totals: tuple[TreeTotal, ...] = ()
    spent_micros: int = 0


def add_totals(totals: tuple[TreeTotal, ...], changes: Iterable[TreeTotal]) -> tuple[TreeTotal, ...]:
    """Return the totals after changes, by meter; those that are 0 are left out."""
    after = {total.meter: total for total in totals}
    for change in changes:
        known = after.get(change.meter, TreeTotal(meter=change.meter))
        after[change.meter] = TreeTotal(
            meter=change.meter,
            amount=_add(known.amount, change.amount),
            pending=_add(known.pending, change.pending),
        )
    return tuple([after[meter] for meter in sorted(after) if after[meter].amount or after[meter].pending])


def subtract_totals(after: tuple[TreeTotal, ...], before: tuple[TreeTotal, ...]) -> tuple[TreeTotal, ...]:
    """Return the changes that lead from `before` to `after`."""
    return add_totals(after, [TreeTotal(meter=one.meter, amount=-one.amount, pending=-one.pending) for one in before])


def changes_of(verdict: CallVerdict) -> list[TreeTotal]:
    """Return what a call changes once its verdict is in the log."""
    if verdict.outcome == ALLOW:
        return [TreeTotal(meter=one.meter, amount=one.amount) for one in verdict.tree_amounts]
    if verdict.outcome == ASK:
        return [TreeTotal(meter=one.meter, pending=one.amount) for one in verdict.tree_amounts]
    return []


def changes_at_end(verdict: CallVerdict, *, is_approved: bool) -> list[TreeTotal]:
    """Return what the end of an approval changes."""
    return [
        TreeTotal(meter=one.meter, amount=one.amount if is_approved else 0, pending=-one.amount)
        for one in verdict.tree_amounts
    ]


def resolve_verdicts(
    verdicts: Sequence[CallVerdict], cases: Sequence[VerdictCase], tree: TreeTotals | None
) -> tuple[CallVerdict, ...]:
    """Return the verdict about each call of a reply; calls before it in the reply count. `tree` None: nothing is known
    of it, so no call that counts is made.
    """
    if not cases and not any(verdict.tree_amounts for verdict in verdicts):
        return tuple(verdicts)
    known = {verdict.index: verdict for verdict in verdicts}
    resolved: list[CallVerdict] = []
    for index in sorted({*known, *(case.verdict.index for case in cases)}):
        own = [case for case in cases if case.verdict.index == index]
        verdict = choose(own, tree) if own else known[index]
        if verdict.tree_amounts and tree is None and verdict.outcome != DENY:
            verdict = CallVerdict(index=index, outcome=DENY, reason=NOT_COUNTED, is_undecided=True)
        elif tree is not None:
            tree = replace(tree, totals=add_totals(tree.totals, changes_of(verdict)))
        resolved.append(verdict)
    return tuple(resolved)


def choose(cases: Sequence[VerdictCase], tree: TreeTotals | None) -> CallVerdict:
    """Return the verdict about one call: of each policy the first case whose guards hold, and of these the strictest.

    Without a tree a rule that denies or asks is met, and one that allows is not.
    """
    by_policy: dict[int, CallVerdict] = {}
    for case in cases:
        if case.policy not in by_policy and holds(case.guards, tree, allows=case.verdict.outcome == ALLOW):
            is_undecided = case.verdict.is_undecided or (tree is None and bool(case.guards))
            by_policy[case.policy] = replace(case.verdict, is_undecided=is_undecided)
    verdicts = [by_policy[policy] for policy in sorted(by_policy)]
    chosen = verdicts[strictest([verdict.outcome for verdict in verdicts])]
    return chosen if tree is None else replace(chosen, tree_totals=_read_totals(cases, tree))


def holds(guards: Sequence[TreeGuard], tree: TreeTotals | None, *, allows: bool) -> bool:
    """Whether the totals are as a rule expects; `allows`: the rule allows the call."""
    if tree is None:
        return not (guards and allows)
    return all(_holds(guard, tree, allows=allows) for guard in guards)


def strictest(outcomes: Sequence[str]) -> int:
    """Return the position of the outcome that counts: the strictest, the first of equal ones."""
    return max(range(len(outcomes)), key=lambda position: (STRICTNESS[outcomes[position]], -position))


def _holds(guard: TreeGuard, tree: TreeTotals, *, allows: bool) -> bool:
    total = _total(guard.meter, tree)
    low, high = total.amount + guard.amount, total.amount + total.pending + guard.amount
    # A lower bound is met somewhere if the highest number meets it, and everywhere if the lowest does.
    over, under = (low, high) if allows else (high, low)
    return (
        (guard.greater_than is None or over / guard.unit > guard.greater_than)
        and (guard.at_least is None or over / guard.unit >= guard.at_least)
        and (guard.less_than is None or under / guard.unit < guard.less_than)
        and (guard.at_most is None or under / guard.unit <= guard.at_most)
    )


def _total(meter: str, tree: TreeTotals) -> TreeTotal:
    if not meter:
        return TreeTotal(meter="", amount=tree.spent_micros)
    return next((total for total in tree.totals if total.meter == meter), TreeTotal(meter=meter))


def _read_totals(cases: Sequence[VerdictCase], tree: TreeTotals) -> tuple[TreeTotal, ...]:
    meters = {guard.meter for case in cases for guard in case.guards}
    return tuple([_total(meter, tree) for meter in sorted(meters)])


def _add(total: int, change: int) -> int:
    return total if total >= TOTAL_MAX else min(TOTAL_MAX, total + change)
