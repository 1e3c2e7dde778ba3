"""Verdicts of the pinned rules of a run: totals over a reply, trees of runs, hooks, and rules that cannot be read."""

import asyncio
import json
from pathlib import Path
from typing import Any

from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.schemas.approval_policy import policy_sha256
from loomlog.schemas.generated.values import ApprovalPolicy, CallVerdict, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.interrupts.questions import CallDecision
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools
from loomlog.services.core.run.subagents.children import inherit_approvals
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.tools.approval_verdicts import (
    HOOK_CHANGED,
    ApprovalRules,
    RunRules,
    denies_changed_call,
)
from loomlog.services.runtime.tools.approval_verdicts import (
    decide_calls as decide_in_tree,
)
from tests.services.core.run.given import DEFINITION, begun

UNDER_100 = {"name": "sum", "then": "deny", "when": [{"sum": "$.amount", "of": ["pay"], "greater_than": 100}]}
ASK = {"name": "ask", "then": "ask", "tools": ["pay"], "ask": {"subjects": ["ann"], "within_s": 60}, "reason": "money"}


def pin(*rules: dict[str, Any], source: str = "file", **fields: Any) -> ApprovalPolicy:
    text = json.dumps({"rules": rules}, separators=(",", ":"))
    return ApprovalPolicy(source=source, text=text, **{"sha256": policy_sha256(text), **fields})


def facts_with(*policies: ApprovalPolicy) -> RunFacts:
    return begun(replace(DEFINITION, approvals=policies)).live.facts


def rules_of(facts: RunFacts, folder: Path) -> RunRules:
    return asyncio.run(ApprovalRules(DefinitionTexts(FileBlobs(folder))).load(facts.definition))


def decide_calls(*asked: Any) -> tuple[CallVerdict, ...]:
    verdicts, cases = decide_in_tree(*asked)
    assert cases == ()
    return verdicts


def pays(*amounts: Any) -> list[ToolCall]:
    return [ToolCall(id=f"c{at}", name="pay", input=json.dumps({"amount": one})) for at, one in enumerate(amounts)]


def test_calls_of_one_reply_count_for_one_another(tmp_path: Path) -> None:
    facts = facts_with(pin(UNDER_100))
    verdicts = decide_calls(rules_of(facts, tmp_path), facts, "t", pays(60, 60, 40))
    assert [one.outcome for one in verdicts] == ["allow", "deny", "allow"]
    assert [one.index for one in verdicts] == [0, 1, 2]


def test_the_totals_of_the_run_are_known(tmp_path: Path) -> None:
    facts = facts_with(pin(UNDER_100))
    rules = rules_of(facts, tmp_path)
    (first,) = decide_calls(rules, facts, "t", pays(90))
    assert decide_calls(rules, replace(facts, totals=first.amounts), "t", pays(20))[0].outcome == "deny"


def test_what_is_asked_is_encrypted_and_names_the_rule(tmp_path: Path) -> None:
    facts = facts_with(pin(ASK))
    (verdict,) = decide_calls(rules_of(facts, tmp_path), facts, "t", pays(1), lambda text: f"<{text}>")
    assert verdict.question == "<helper asks to call pay: money>"
    assert (verdict.source, verdict.rule, verdict.reason) == ("file", "ask", "money")
    assert (verdict.groups[0].subjects, verdict.groups[0].within_ms) == (("ann",), 60_000)


def test_of_two_policies_that_ask_the_first_one_names_the_approvers(tmp_path: Path) -> None:
    own = {**ASK, "name": "own", "ask": {"subjects": ["the agent's author"]}}
    facts = facts_with(pin(ASK, source="tenant"), pin(own, source="agent"))
    (verdict,) = decide_calls(rules_of(facts, tmp_path), facts, "t", pays(1))
    assert verdict.groups[0].subjects == ("ann",)


def test_a_sub_agent_cannot_evade_a_rule_of_its_root(tmp_path: Path) -> None:
    for_helper = {"name": "helper", "then": "deny", "tools": ["pay"], "agents": ["helper"]}
    parent = replace(DEFINITION, approvals=(pin(UNDER_100, for_helper, source="tenant"),))
    inherited = inherit_approvals((pin(UNDER_100, for_helper, source="tenant"),), parent)
    child = replace(DEFINITION, name="other", approvals=inherited)
    facts = begun(child).live.facts
    (verdict,) = decide_calls(rules_of(facts, tmp_path), facts, "t", pays(1))
    assert (verdict.outcome, verdict.rule, verdict.is_undecided) == ("deny", "sum", True)
    only_names = inherit_approvals((), replace(DEFINITION, approvals=(pin(for_helper),)))
    facts = begun(replace(DEFINITION, name="other", approvals=only_names)).live.facts
    assert decide_calls(rules_of(facts, tmp_path), facts, "t", pays(1))[0].rule == "helper"


def test_rules_that_cannot_be_read_deny_every_call(tmp_path: Path) -> None:
    for broken in (pin(UNDER_100, sha256="0" * 64), pin({"name": "x", "then": "maybe"})):
        facts = facts_with(broken)
        (verdict,) = decide_calls(rules_of(facts, tmp_path), facts, "t", pays(1))
        assert (verdict.outcome, verdict.rule) == ("deny", "")


def test_arguments_that_a_hook_changed_are_decided_about_again(tmp_path: Path) -> None:
    facts = facts_with(pin(UNDER_100))
    rules = rules_of(facts, tmp_path)
    (verdict,) = decide_calls(rules, facts, "t", pays(90))
    decision = CallDecision(
        index=0, call_id="c0", verdict=verdict, arguments_sha256="", effect_class="unsafe", reconcilable=False
    )
    state = AwaitingTools(
        facts=replace(facts, totals=verdict.amounts), turn=1, requested_calls=tuple(pays(90)), decisions=(decision,)
    )
    assert denies_changed_call(rules, state, "t", 0, "pay", '{"amount": 85}') == ""
    assert "more to a sum" in denies_changed_call(rules, state, "t", 0, "pay", '{"amount": 95}')
    assert denies_changed_call(rules, state, "t", 0, "pay", '{"amount": 101}').startswith(HOOK_CHANGED)
    asked = replace(decision, verdict=replace(verdict, outcome="ask"))
    assert denies_changed_call(rules, replace(state, decisions=(asked,)), "t", 0, "pay", '{"amount": 1}')


def test_a_run_without_rules_loads_nothing(tmp_path: Path) -> None:
    assert rules_of(facts_with(), tmp_path) == RunRules()
