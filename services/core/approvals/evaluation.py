"""The verdict of policies about one call. Pure, bounded, and closed to errors.

Within a policy the first rule that matches decides; of several policies the strictest verdict: deny, then ask, then
allow. Of those that ask, the first policy in the order of trust (file, tenant, agents from the root on) names the
approvers. No rule matches: allowed.

A condition that cannot be decided (an argument that is missing or of another type, a count of calls that other runs of
the tree may have made) counts as met by a rule that denies or asks, and as not met by one that allows. Conditions of
rules that count over the tree are decided later, when the totals are known: they are guards of a case here.

Rules are indexed by the name of the tool, so that a call costs what the rules for its tool cost.

Before: schemas/approval_policy.py. After: services/runtime/tools/approval_verdicts.py, with arguments in plaintext.
"""

import fnmatch
import json
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import field

from loomlog.schemas.approval_policy import (
    ALLOW,
    DENY,
    EVERY,
    RUN,
    TREE,
    Ask,
    Condition,
    Path,
    Policy,
    Rule,
    meter_of,
    parse_path,
    reads_history,
)
from loomlog.schemas.generated.values import TreeGuard
from loomlog.schemas.records import Value, replace
from loomlog.services.core.approvals.arguments import find_values
from loomlog.services.core.approvals.tree_totals import TreeTotals, holds

MICROS = 1_000_000
AMOUNT_MAX = 1 << 53
"""Where amounts and totals stop, in millionths: what cannot be read counts as this much, so that it is asked about."""
TOOLS_KEPT = 1_000
"""Names of tools whose rules a policy remembers: a model may invent any number of them."""
UNKNOWN = -1
"""A total of which it is not known whether an earlier call of the same reply counts."""
ARGUMENTS_UNREADABLE = object()
"""Arguments that are no JSON object: no condition on them can be decided."""


UNDECIDABLE = (ArithmeticError, TypeError, ValueError, RecursionError)
"""What a condition raises over arguments that it cannot compare."""


class CallFacts(Value, frozen=True, kw_only=True):
    """What rules may ask of a call. `totals`: by meter, calls or millionths, without this call."""

    tool: str
    arguments: Any
    agents: tuple[str, ...]
    """The agent of the run, and those that it works for."""
    tenant: str
    user: str
    totals: Mapping[str, int]
    spent_micros: int
    """What the run has cost, with the reply that makes the call."""
    cost_micros: int = 0
    """What that reply has cost: totals of the tree do not have it yet."""
    is_counted: bool = True
    """False: other runs of the tree may have made calls that count, so no count, sum or cost of the run is known."""
    tree: TreeTotals | None = None
    """Totals of the tree, where a verdict is asked for at once."""
    values: dict[Path, list[Any]] = field(default_factory=dict)
    """Values of the arguments by path, as far as rules have asked for them."""


class Verdict(Value, frozen=True, kw_only=True):
    """What a policy says about a call. `rule` is empty when no rule matches."""

    outcome: str = ALLOW
    rule: str = ""
    reason: str = ""
    ask: Ask | None = None
    is_undecided: bool = False
    """A condition of the rule could not be decided."""


NO_RULE = Verdict()
DENIED_UNREADABLE = Verdict(outcome=DENY, reason="the rules for this call cannot be read")


Case = tuple[tuple[TreeGuard, ...], Verdict]
"""A verdict, and what it expects of the totals of the tree."""


class CompiledPolicy:
    """A policy whose paths and patterns are prepared; used by many calls."""

    def __init__(self, policy: Policy) -> None:
        self._rules = tuple(_CompiledRule(rule) for rule in policy.rules)
        self._meters, self._tree_meters = _meters_of(policy, RUN), _meters_of(policy, TREE)
        self.counts_over_trees = any(rule.reach == TREE for rule in policy.rules)
        self._by_tool: OrderedDict[str, tuple[_CompiledRule, ...]] = OrderedDict()

    def verdict(self, call: CallFacts) -> Verdict:
        """Return what the first rule that matches says, given the totals of `call.tree`."""
        for guards, verdict in self.cases(call):
            if holds(guards, call.tree, allows=verdict.outcome == ALLOW):
                return replace(verdict, is_undecided=True) if guards and call.tree is None else verdict
        raise AssertionError("the last case has no guard")

    def cases(self, call: CallFacts) -> list[Case]:
        """Return the verdicts of the rules that match, in their order; the first one whose guards hold counts. The last
        one has no guard.
        """
        cases: list[Case] = []
        for rule in self._rules_for(call.tool):
            verdict = rule.verdict(call)
            if verdict is not None:
                cases.append((rule.guards(call), verdict))
                if not rule.tree_tests:
                    return cases
        cases.append(((), NO_RULE))
        return cases

    def amounts(self, tool: str, arguments: Any) -> dict[str, int]:
        """Return what a call adds to each total of its run."""
        return {meter.key: amount for meter in self._meters if (amount := meter.amount(tool, arguments))}

    def tree_amounts(self, tool: str, arguments: Any) -> dict[str, int]:
        """Return what a call adds to each total of its tree."""
        return {meter.key: amount for meter in self._tree_meters if (amount := meter.amount(tool, arguments))}

    def _rules_for(self, tool: str) -> "tuple[_CompiledRule, ...]":
        rules = self._by_tool.get(tool)
        if rules is None:
            rules = tuple(rule for rule in self._rules if rule.is_for_tool(tool))
            self._by_tool[tool] = rules
            if len(self._by_tool) > TOOLS_KEPT:
                self._by_tool.popitem(last=False)
        return rules


def parse_call_arguments(text: str) -> Any:
    """Return the arguments of a call; ARGUMENTS_UNREADABLE when they are no JSON object."""
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return ARGUMENTS_UNREADABLE
    return arguments if isinstance(arguments, dict) else ARGUMENTS_UNREADABLE


# --- rules -----------------------------------------------------------------------------------------------------------

Test = Callable[[CallFacts], bool]
"""Whether a condition holds. Raises ValueError when that cannot be decided."""


class _CompiledRule:
    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.is_for_tool = any_pattern(rule.tools)
        self._agents, self._tenants, self._users = map(_restriction, (rule.agents, rule.tenants, rule.users))
        is_tree = rule.reach == TREE
        self._tests = [
            _test_of(condition, is_lenient=rule.then == ALLOW)
            for condition in rule.when
            if not (is_tree and reads_history(condition))
        ]
        self.tree_tests = [_TreeTest(condition) for condition in rule.when if is_tree and reads_history(condition)]
        self._met = _verdict_of(rule, is_undecided=False)
        self._undecided = _verdict_of(rule, is_undecided=True)

    def guards(self, call: CallFacts) -> tuple[TreeGuard, ...]:
        """Return what the rule expects of the totals of the tree."""
        return tuple([test.guard(call) for test in self.tree_tests]) if self.tree_tests else ()

    def verdict(self, call: CallFacts) -> Verdict | None:
        """Return the verdict, if the totals of the tree are as expected; None when the rule does not match."""
        if self._agents is not None and not any(map(self._agents, call.agents)):
            return None
        if (self._tenants is not None and not self._tenants(call.tenant)) or (
            self._users is not None and not self._users(call.user)
        ):
            return None
        met = self._met
        for test in self._tests:
            try:
                if not test(call):
                    return None
            except UNDECIDABLE:
                if self._rule.then == ALLOW:
                    return None
                met = self._undecided
        return met


def _verdict_of(rule: Rule, *, is_undecided: bool) -> Verdict:
    return Verdict(outcome=rule.then, rule=rule.name, reason=rule.reason, ask=rule.ask, is_undecided=is_undecided)


@lru_cache(maxsize=10_000)
def _pattern(text: str) -> Callable[[str], bool]:
    if "*" not in text:
        return text.__eq__
    if text == "*":
        return lambda name: True
    expression = re.compile(fnmatch.translate(re.sub(r"([?\[])", r"[\1]", text)))
    return lambda name: expression.match(name) is not None


def any_pattern(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return the test whether one of the patterns has a name."""
    tests = [_pattern(one) for one in patterns]
    return tests[0] if len(tests) == 1 else lambda name: any(test(name) for test in tests)


def _restriction(patterns: Sequence[str]) -> Callable[[str], bool] | None:
    return None if "*" in patterns else any_pattern(patterns)


# --- conditions ------------------------------------------------------------------------------------------------------


def _test_of(condition: Condition, *, is_lenient: bool) -> Test:
    """Return the test of a condition. Over a path with `[*]` one value is enough to deny or to ask; to allow
    (`is_lenient`) all must hold.
    """
    if condition.argument is not None:
        return _argument_test(condition, parse_path(condition.argument), all if is_lenient else any)
    compare = _comparison(condition)
    if condition.spent:
        return lambda call: compare(_known(call, call.spent_micros) / MICROS)
    meter = _Meter(condition, RUN)
    if condition.count is not None:
        return lambda call: compare(_known(call, call.totals.get(meter.key, 0)))

    def sum_holds(call: CallFacts) -> bool:
        earlier = _known(call, call.totals.get(meter.key, 0))
        return compare(min(AMOUNT_MAX, earlier + meter.amount(call.tool, call.arguments)) / MICROS)

    return sum_holds


def _known(call: CallFacts, number: int) -> int:
    if not call.is_counted or number == UNKNOWN:
        raise ValueError("other calls may count")
    return number


def _argument_test(condition: Condition, path: Path, quantifier: Callable[[Any], bool]) -> Test:
    holds = _comparison(condition)
    exists = condition.exists
    has_comparison = _has_comparison(condition)

    def test(call: CallFacts) -> bool:
        if call.arguments is ARGUMENTS_UNREADABLE:
            raise ValueError("the arguments are no JSON object")
        values = call.values.get(path)
        if values is None:
            values = call.values[path] = find_values(call.arguments, path)
        if exists is not None and exists != bool(values):
            return False
        if not has_comparison:
            return True
        if not values:
            raise ValueError("there is no such argument")
        return holds(values[0]) if len(values) == 1 else quantifier([holds(value) for value in values])

    return test


def _has_comparison(condition: Condition) -> bool:
    named = (condition.one_of, condition.matches, condition.greater_than, condition.at_least)
    return (
        any(one is not None for one in (*named, condition.less_than, condition.at_most))
        or condition.equals is not msgspec.UNSET
        or condition.not_equals is not msgspec.UNSET
    )


def _comparison(condition: Condition) -> Callable[[Any], bool]:
    """Return whether a value passes all comparisons. Raises ValueError for a value of another type."""
    tests: list[Callable[[Any], bool]] = []
    if (equal := condition.equals) is not msgspec.UNSET:
        tests.append(lambda value: _same(value, equal))
    if (unequal := condition.not_equals) is not msgspec.UNSET:
        tests.append(lambda value: not _same(value, unequal))
    if (choices := condition.one_of) is not None:
        tests.append(lambda value: any(_same(value, one) for one in choices))
    if condition.matches is not None:
        matches = _pattern(condition.matches)
        tests.append(lambda value: matches(_text(value)))
    if (low := condition.greater_than) is not None:
        tests.append(lambda value: _number(value) > low)
    if (least := condition.at_least) is not None:
        tests.append(lambda value: _number(value) >= least)
    if (high := condition.less_than) is not None:
        tests.append(lambda value: _number(value) < high)
    if (most := condition.at_most) is not None:
        tests.append(lambda value: _number(value) <= most)
    return tests[0] if len(tests) == 1 else lambda value: all(test(value) for test in tests)


def _same(value: Any, other: Any) -> bool:
    """Compare as JSON does: true is not 1. Another type than the expected one cannot be decided."""
    if isinstance(value, dict | list):
        raise ValueError("expected a text, a number, true, false or null")
    if value is None or other is None:
        return value is other
    numbers = isinstance(value, int | float) and isinstance(other, int | float)
    if isinstance(value, bool) is not isinstance(other, bool) or not (numbers or type(value) is type(other)):
        raise ValueError("the value is of another type")
    return bool(value == other)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def _number(value: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("expected a number")
    return value


class _TreeTest:
    """A condition on a total of the tree."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._meter = None if condition.spent else _Meter(condition, TREE)

    def guard(self, call: CallFacts) -> TreeGuard:
        condition, meter = self._condition, self._meter
        if meter is None:
            amount = call.cost_micros
        else:
            amount = 0 if condition.count is not None else meter.amount(call.tool, call.arguments)
        return TreeGuard(
            meter="" if meter is None else meter.key,
            amount=amount,
            unit=1 if condition.count is not None else MICROS,
            greater_than=condition.greater_than,
            at_least=condition.at_least,
            less_than=condition.less_than,
            at_most=condition.at_most,
        )


def _meters_of(policy: Policy, reach: str) -> "tuple[_Meter, ...]":
    conditions = [condition for rule in policy.rules if rule.reach == reach for condition in rule.when]
    return tuple({key: _Meter(one, reach) for one in conditions if (key := meter_of(one, reach))}.values())


class _Meter:
    """A total over calls: how many, or the sum of an argument in millionths."""

    def __init__(self, condition: Condition, reach: str) -> None:
        self.key = meter_of(condition, reach)
        self._is_for_tool = any_pattern(condition.count or condition.of or ())
        self._path = parse_path(condition.sum) if condition.sum is not None else None

    def amount(self, tool: str, arguments: Any) -> int:
        """Return what a call adds; AMOUNT_MAX when its amount cannot be read."""
        if not self._is_for_tool(tool):
            return 0
        if self._path is None:
            return 1
        try:
            values = find_values(arguments, self._path) if arguments is not ARGUMENTS_UNREADABLE else []
            if not values and EVERY not in self._path:
                return AMOUNT_MAX
            amount = sum(max(0, _number(value)) for value in values) * MICROS
        except (ValueError, OverflowError):
            return AMOUNT_MAX
        return AMOUNT_MAX if amount >= AMOUNT_MAX else round(amount)
