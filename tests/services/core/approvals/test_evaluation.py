"""The verdict of policies: the first rule, the strictest policy, and what cannot be decided."""

from typing import Any

import pytest

from loomlog.services.core.approvals import evaluation
from loomlog.services.core.approvals.evaluation import (
    AMOUNT_MAX,
    ARGUMENTS_UNREADABLE,
    MICROS,
    Verdict,
    parse_call_arguments,
)
from loomlog.services.core.approvals.tree_totals import TreeTotals, strictest
from tests.services.core.approvals.calls import call, outcome, policy

ASK = {"then": "ask", "ask": {"subjects": ["boss"]}}


def test_without_a_matching_rule_a_call_is_allowed() -> None:
    assert outcome(policy({"tools": ["pay"]}), call("read")) == "allow"


def test_the_first_rule_that_matches_decides() -> None:
    rules = policy({"then": "allow", "when": [{"argument": "$.amount", "at_most": 100}]}, {"reason": "too much"})
    assert outcome(rules, call(arguments={"amount": 100})) == "allow"
    assert rules.verdict(call(arguments={"amount": 101})).reason == "too much"


@pytest.mark.parametrize(
    ("pattern", "tool", "matches"),
    [
        ("pay", "pay", True), ("pay", "payment", False), ("pay*", "payment", True), ("*", "pay", True),
        ("mcp__*__pay", "mcp__bank__pay", True), ("mcp__*__pay", "mcp__bank__repay", False), ("p?y", "pay", False),
        ("[p]ay", "pay", False), ("pay", "Pay", False), ("*a*a*a*a", "a" * 5_000 + "b", False),
    ],
)  # fmt: skip
def test_patterns_have_stars_and_nothing_else(pattern: str, tool: str, matches: bool) -> None:
    assert (outcome(policy({"tools": [pattern]}), call(tool)) == "deny") is matches


@pytest.mark.parametrize(("field", "name"), [("agents", "cashier"), ("tenants", "shop"), ("users", "ann")])
def test_rules_are_restricted_to_names(field: str, name: str) -> None:
    assert outcome(policy({field: [name]}), call()) == "deny"
    assert outcome(policy({field: ["other", "x*"]}), call()) == "allow"


def test_a_rule_for_an_agent_holds_for_those_that_work_for_it() -> None:
    assert outcome(policy({"agents": ["cashier"]}), call(agents=("helper", "cashier"))) == "deny"


@pytest.mark.parametrize(
    ("comparison", "value", "holds"),
    [
        ({"equals": "a"}, "a", True), ({"equals": "a"}, "b", False), ({"equals": None}, None, True),
        ({"equals": 1}, 1.0, True), ({"not_equals": "a"}, "b", True), ({"one_of": ["a", "b"]}, "b", True),
        ({"matches": "DE*"}, "DE12", True), ({"matches": "DE*"}, "FR12", False), ({"greater_than": 1}, 1, False),
        ({"at_least": 1}, 1, True), ({"less_than": 1}, 0.5, True), ({"at_most": 1}, 2, False),
        ({"at_least": 1, "at_most": 3}, 2, True), ({"at_least": 1, "at_most": 3}, 4, False),
        ({"exists": True}, "x", True), ({"exists": False}, "x", False),
    ],
)  # fmt: skip
def test_arguments_are_compared(comparison: dict[str, Any], value: Any, holds: bool) -> None:
    rules = policy({"when": [{"argument": "$.order.lines[0].a", **comparison}]})
    assert (outcome(rules, call(arguments={"order": {"lines": [{"a": value}]}})) == "deny") is holds


@pytest.mark.parametrize(
    "arguments",
    [{}, {"amount": "1000"}, {"amount": True}, {"amount": None}, {"amount": [5]}, {"amount": float("nan")},
     {"amount": 10**400}, ARGUMENTS_UNREADABLE],
)  # fmt: skip
@pytest.mark.parametrize("then", ["deny", "ask"])
def test_what_cannot_be_decided_is_denied_or_asked_and_never_allowed(arguments: Any, then: str) -> None:
    condition = {"argument": "$.amount", "greater_than": 10**6}
    strict = policy({"then": then, **({"ask": ASK["ask"]} if then == "ask" else {}), "when": [condition]})
    assert strict.verdict(call(arguments=arguments)).outcome == then
    lenient = policy({"then": "allow", "when": [{"argument": "$.amount", "less_than": 10**6}]}, {})
    assert outcome(lenient, call(arguments=arguments)) == "deny"


@pytest.mark.parametrize("error", [ZeroDivisionError(), OverflowError(), RecursionError(), TypeError(), ValueError()])
@pytest.mark.parametrize("reach", ["run", "tree"])
def test_a_rule_that_raises_asks_or_denies_and_never_allows(
    error: Exception, reach: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(arguments: Any, path: Any) -> list[Any]:
        raise error

    monkeypatch.setattr(evaluation, "find_values", broken)
    counts = {"count": ["pay"], "at_most": 10}
    rules = {"reach": reach, "when": [{"argument": "$.amount", "at_most": 10}, counts]}
    asked = call(arguments={"amount": 1}, tree=TreeTotals())
    assert policy({**rules, "then": "deny"}).verdict(asked) == Verdict(outcome="deny", rule="rule-0", is_undecided=True)
    assert policy({**rules, **ASK}).verdict(asked).outcome == "ask"
    assert outcome(policy({**rules, "then": "allow"}, {}), asked) == "deny"


def test_of_many_values_one_is_enough_to_deny_and_all_are_needed_to_allow() -> None:
    condition = {"argument": "$.lines[*].amount", "at_most": 10}
    mixed = {"lines": [{"amount": 5}, {"amount": 50}]}
    assert outcome(policy({"when": [condition]}), call(arguments=mixed)) == "deny"
    assert outcome(policy({"then": "allow", "when": [condition]}, {}), call(arguments=mixed)) == "deny"
    many = {"lines": [{"amount": 1}] * 1_001}
    assert policy({"when": [condition]}).verdict(call(arguments=many)).is_undecided


@pytest.mark.parametrize("arguments", [{"a": "text"}, {"a": {"0": 1}}, {"a": [1]}, {"a": None}, {"b": 1}])
def test_a_path_finds_entries_of_lists_and_nothing_else(arguments: Any) -> None:
    rules = policy({"when": [{"argument": "$.a[1]", "exists": True}]})
    assert outcome(rules, call(arguments=arguments)) == "allow"
    assert outcome(rules, call(arguments={"a": [1, 2]})) == "deny"


def test_earlier_calls_are_counted_and_summed_with_this_one() -> None:
    rules = policy({"when": [{"sum": "$.amount", "of": ["pay*"], "greater_than": 100}]})
    totals: dict[str, int] = {}
    outcomes = []
    for _ in range(3):
        asked = call(arguments={"amount": 40}, totals=totals)
        outcomes.append(outcome(rules, asked))
        for meter, amount in rules.amounts("pay", asked.arguments).items():
            totals[meter] = totals.get(meter, 0) + amount
    assert outcomes == ["allow", "allow", "deny"]
    assert list(totals.values()) == [120 * MICROS]
    counted = policy({"when": [{"count": ["pay"], "at_least": 2}]})
    assert outcome(counted, call(totals={next(iter(counted.amounts("pay", {}))): 2})) == "deny"
    assert counted.amounts("read", {}) == {}


@pytest.mark.parametrize("arguments", [{}, {"amount": "9"}, {"amount": 1e300}, ARGUMENTS_UNREADABLE])
def test_an_amount_that_cannot_be_read_is_the_largest(arguments: Any) -> None:
    rules = policy({"when": [{"sum": "$.amount", "of": ["pay"], "greater_than": 10**6}]})
    assert list(rules.amounts("pay", arguments).values()) == [AMOUNT_MAX]
    assert outcome(rules, call(arguments=arguments)) == "deny"


def test_negative_amounts_make_no_room() -> None:
    rules = policy({"when": [{"sum": "$.amount", "of": ["pay"], "greater_than": 100}]})
    assert rules.amounts("pay", {"amount": -1_000}) == {}


def test_where_other_runs_may_have_paid_a_sum_is_not_known() -> None:
    rules = policy({"when": [{"sum": "$.amount", "of": ["pay"], "greater_than": 100}]})
    assert rules.verdict(call(arguments={"amount": 1}, is_counted=False)).is_undecided
    assert outcome(policy({"when": [{"spent": True, "at_least": 5}]}), call(is_counted=False)) == "deny"
    lenient = policy({"then": "allow", "when": [{"count": ["pay"], "at_most": 3}]}, {})
    assert outcome(lenient, call(is_counted=False)) == "deny"


def test_the_cost_of_a_run_is_compared_in_its_currency() -> None:
    rules = policy({"when": [{"spent": True, "greater_than": 1.5}]})
    assert outcome(rules, call(spent_micros=1_500_000)) == "allow"
    assert outcome(rules, call(spent_micros=1_500_001)) == "deny"


def test_the_strictest_policy_counts_and_the_first_of_equal_ones() -> None:
    assert strictest(["allow", "ask", "deny"]) == 2
    assert strictest(["allow", "ask", "ask"]) == 1
    assert strictest(["allow"]) == 0


@pytest.mark.parametrize("text", ["[1]", "{", "1", "null", "[" * 10_000])
def test_arguments_that_are_no_object_cannot_be_read(text: str) -> None:
    assert parse_call_arguments(text) is ARGUMENTS_UNREADABLE
    assert parse_call_arguments("") == {}
