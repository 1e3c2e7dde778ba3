"""What a policy may say, and the sentence for what it may not."""

from typing import Any

import pytest

from loomlog.schemas.approval_policy import (
    POLICY_BYTES_MAX,
    PolicyError,
    decode_policy,
    meter_of,
    parse_policy,
    policy_sha256,
    policy_text,
    reads_tree_cost,
)

ASK = {"subjects": ["ann", "bob"], "approvals": 2}


def test_a_policy_comes_back_from_its_text_with_the_same_version() -> None:
    rules = [
        {"name": "pay", "then": "ask", "tools": ["pay*"], "when": [{"argument": "$.a", "at_least": 1}], "ask": ASK}
    ]
    text = policy_text(parse_policy({"rules": rules}))
    assert policy_text(decode_policy(text)) == text
    assert policy_sha256(text) == policy_sha256(policy_text(decode_policy(text.replace(":", ": "))))


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ({"then": "maybe"}, "rules[0].then: Invalid enum value 'maybe'"),
        ({"name": "no name"}, "rules[0].name: Expected `str` matching"),
        ({"tool": "pay"}, "rules[0]: Object contains unknown field `tool`"),
        ({"tools": []}, "rules[0].tools: Expected `array` of length >= 1"),
        ({"tools": ["a*b*c*d*e*f"]}, "more than 4 stars"),
        ({"agents": ["a\nb"]}, "cannot be printed"),
        ({"then": "ask"}, "expected ask with then: ask"),
        ({"ask": ASK}, "expected ask with then: ask"),
        ({"then": "ask", "ask": {}}, "no one could approve"),
        ({"then": "ask", "ask": {"subjects": ["ann", "ann"], "approvals": 2}}, "only 1 subjects may approve"),
        ({"then": "ask", "ask": {**ASK, "escalate": [{}]}}, "escalate[0]: expected subjects or scopes"),
        ({"then": "ask", "ask": {**ASK, "within_s": 0}}, "Expected `int` >= 1"),
        ({"then": "ask", "ask": {"scopes": ["root"]}}, "'root' is no scope of access"),
        ({"then": "ask", "ask": {**ASK, "escalate": [{"scopes": ["s"]}] * 4}}, "Expected `array` of length <= 3"),
        ({"when": [{}]}, "expected exactly one of argument, count, sum and spent"),
        ({"when": [{"argument": "$.a", "spent": True, "at_least": 1}]}, "exactly one of"),
        ({"when": [{"argument": "$.a"}]}, "expected a comparison"),
        ({"when": [{"argument": "$..a", "equals": 1}]}, "'$..a' is no path"),
        ({"when": [{"argument": "$.a.b.c.d.e.f.g.h.i", "equals": 1}]}, "1 to 8 steps"),
        ({"when": [{"argument": "a/0", "equals": 1}]}, "is no path"),
        ({"when": [{"sum": "$.a", "at_least": 1}]}, "expected of"),
        ({"when": [{"count": ["pay"], "equals": 1}]}, "equals compares arguments only"),
        ({"when": [{"argument": "$.a", "exists": False, "at_least": 1}]}, "exists: false"),
        ({"when": [{"argument": "$.a", "at_least": float("nan")}]}, "at_least is nan"),
        ({"when": [{"argument": "$.a", "equals": float("inf")}]}, "equals is inf"),
        ({"when": [{"argument": "$.a", "one_of": [1, float("nan")]}]}, "one_of is nan"),
        ({"when": [{"spent": True, "at_most": 10**400}]}, "at_most is 1"),
        ({"when": [{"spent": True, "at_least": 10**10}]}, "counted up to 9000000000"),
        ({"when": [{"sum": "$.a", "of": ["pay"], "greater_than": 9.1e9}]}, "counted up to 9000000000"),
        ({"reach": "everything"}, "rules[0].reach: Invalid enum value 'everything'"),
        ({"reach": "tree"}, "the reach tree is for conditions on count, sum or spent"),
        ({"reach": "tree", "when": [{"argument": "$.a", "equals": 1}]}, "the reach tree is for conditions"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_with_its_place(rule: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policy({"rules": [{"name": "pay", "then": "deny", **rule}]}, scopes={"runs:read", "s"})
    assert sentence in str(error.value)
    assert "rules[0]" in str(error.value)


def test_two_rules_have_two_names() -> None:
    with pytest.raises(PolicyError, match="has this name already"):
        parse_policy({"rules": [{"name": "a", "then": "deny"}] * 2})


def test_ten_thousand_rules_are_too_many() -> None:
    rules = [{"name": f"r{number}", "then": "deny"} for number in range(10_000)]
    with pytest.raises(PolicyError, match="length <= 1000"):
        parse_policy({"rules": rules})


def test_a_policy_is_bounded_in_bytes_and_totals() -> None:
    large = [{"name": f"r{number}", "then": "deny", "reason": "x" * 500} for number in range(600)]
    with pytest.raises(PolicyError, match=f"more than {POLICY_BYTES_MAX} bytes"):
        parse_policy({"rules": large})
    counts = [{"name": f"r{n}", "then": "deny", "when": [{"count": [f"t{n}"], "at_least": 1}]} for n in range(101)]
    with pytest.raises(PolicyError, match="101 different counts and sums"):
        parse_policy({"rules": counts})


def test_rules_that_count_over_trees_are_bounded_and_count_apart_from_others() -> None:
    when = [{"count": ["pay"], "at_least": 1}]
    of_trees = [{"name": f"r{n}", "then": "deny", "reach": "tree", "when": when} for n in range(51)]
    with pytest.raises(PolicyError, match="51 rules have the reach tree: expected at most 50"):
        parse_policy({"rules": of_trees})
    (condition,) = parse_policy({"rules": of_trees[:1]}).rules[0].when
    assert meter_of(condition, "run") != meter_of(condition, "tree")
    assert not reads_tree_cost(parse_policy({"rules": of_trees[:1]}))
    spent = {"name": "a", "then": "deny", "when": [{"spent": True, "at_least": 1}]}
    assert not reads_tree_cost(parse_policy({"rules": [spent]}))
    assert reads_tree_cost(parse_policy({"rules": [{**spent, "reach": "tree"}]}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"rules": {}}', "[" * 100_000, '{"rules": 1}', "\ud800"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        decode_policy(text)


def test_a_policy_that_contains_itself_is_refused() -> None:
    rule: dict[str, Any] = {"name": "a", "then": "deny"}
    rule["when"] = [rule]
    with pytest.raises(PolicyError):
        parse_policy({"rules": [rule]})
