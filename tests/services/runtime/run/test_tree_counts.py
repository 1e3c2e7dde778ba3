"""Rules that count over a tree: runs that act at the same time, in one partition, with the log that follows."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.schemas.approval_policy import decode_policy, policy_sha256, reads_tree_cost
from loomlog.schemas.generated.run_commands import GiveApproval
from loomlog.schemas.generated.run_events import ApprovalDecided, TreeCounted
from loomlog.schemas.generated.values import ApprovalPolicy, CommandEnvelope, ParentCall, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.approvals.tree_totals import NOT_COUNTED
from loomlog.services.core.run.commands import GiveApprovalCommand, RunTimerFired
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.interrupts.interruptions import interrupt_id_for
from loomlog.services.core.run.interrupts.tree_counts import count_in_root, tree_totals
from loomlog.services.core.run.state import Absent, AwaitingTools
from loomlog.services.core.run.subagents.children import inherit_approvals
from loomlog.services.runtime.content.definition_texts import DefinitionTexts
from loomlog.services.runtime.run.late_results import decode_result, encode_result
from loomlog.services.runtime.tools.approval_verdicts import HOOK_CHANGED, ApprovalRules, RunRules, decide_calls
from loomlog.services.runtime.tools.approval_verdicts import denies_changed_call as denies_changed
from loomlog.services.stream.partition import partition as partition_module
from loomlog.services.stream.partition.partition import Aggregate
from tests.services.core.run.given import DEFINITION, NOW, answered, cancel, quarantine, returned, start
from tests.services.stream.given import CODEC, EVENTS, aggregate, claimed, flushed

ROOT = "r_x"
UNDER_100 = {"name": "sum", "then": "deny", "when": [{"sum": "$.amount", "of": ["pay"], "greater_than": 100}]}
TWO_TRIES = {"name": "tries", "then": "deny", "tools": ["pay"], "when": [{"count": ["pay"], "at_least": 2}]}
ASK = {"name": "ask", "then": "ask", "tools": ["pay"], "ask": {"subjects": ["ann"], "within_s": 60}}
AFTER_TEST = {"name": "tested", "then": "allow", "tools": ["pay"], "when": [{"count": ["test"], "at_least": 1}]}
NEVER = {"name": "never", "then": "deny", "tools": ["pay"]}


def pinned(*rules: dict[str, Any], reach: str = "tree") -> ApprovalPolicy:
    text = json.dumps({"rules": [{"reach": reach, **rule} if "when" in rule else rule for rule in rules]})
    reads_cost = reads_tree_cost(decode_policy(text))
    return ApprovalPolicy(source="file", text=text, sha256=policy_sha256(text), reads_tree_cost=reads_cost)


class Tree:
    """A root with runs below it, in one partition; what they decide is in the log at once, unless `holds`."""

    def __init__(self, folder: Path, *rules: dict[str, Any], below: int = 2, reach: str = "tree") -> None:
        self.log = MemoryLog({EVENTS: 1})
        self.owned = claimed(self.log)
        self._texts = DefinitionTexts(FileBlobs(folder))
        self.root = aggregate(ROOT)
        own = replace(DEFINITION, approvals=(pinned(*rules, reach=reach),) if rules else ())
        self.submit(self.root, start(definition=own))
        inherited = replace(DEFINITION, approvals=inherit_approvals((), own))
        self.below = [aggregate(f"{ROOT}-{number}") for number in range(below)]
        for number, run in enumerate(self.below):
            call = ParentCall(run_id=ROOT, agent_id="a_x", root_run_id=ROOT, turn=1, index=0, number=number, depth=1)
            self.submit(run, replace(start(definition=inherited), parent=call))

    def submit(self, run: Aggregate, order: Any) -> list[Any]:
        """Decide; the events of all runs that this gave."""
        before = self.owned.pending_decisions
        assert self.owned.submit(run, order, at_ms=NOW)
        decisions = list(self.owned._pending)[before:]
        return [event for decision in decisions for event in decision.events]

    def reply(self, run: Aggregate, tool: str = "pay", cost_micros: int = 0, **arguments: Any) -> Any:
        """The answer of a model that calls a tool, as the owner of the run has evaluated its rules."""
        call = ToolCall(id="c0", name=tool, input=json.dumps(arguments))
        verdicts, cases = decide_calls(self.rules(run), run.state.facts, "t", [call], cost_micros=cost_micros)
        more: dict[str, Any] = {"cost_micros": cost_micros, "currency": "USD"}
        return answered(run.state, "", call, verdicts=verdicts, cases=cases, **more)

    def rules(self, run: Aggregate) -> RunRules:
        return asyncio.run(ApprovalRules(self._texts).load(run.state.facts.definition))

    def calls(self, run: Aggregate, tool: str = "pay", **arguments: Any) -> str:
        """Make a call; what the rules say about it, with the name of the rule."""
        return self.decided(self.submit(run, self.reply(run, tool, **arguments)))

    def decided(self, events: list[Any]) -> str:
        verdict = next(event.verdict for event in events if isinstance(event, ApprovalDecided))
        return f"{verdict.outcome} {verdict.rule}".strip() + (" undecided" if verdict.is_undecided else "")

    def returns(self, run: Aggregate) -> None:
        self.submit(run, returned(run.state, 0, "done"))

    def gives(self, run: Aggregate, *, approved: bool) -> None:
        envelope = CommandEnvelope(command_id=f"c {approved}", tenant="t", subject="ann")
        approval = interrupt_id_for(run.id, 1, 0)
        command = GiveApproval(envelope=envelope, run_id=run.id, interrupt_id=approval, is_approved=approved)
        self.submit(run, GiveApprovalCommand(at_ms=NOW, command=command))

    def totals(self) -> list[tuple[int, int]]:
        return [(total.amount, total.pending) for total in self.root.state.facts.tree]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path, UNDER_100)


def test_runs_of_a_tree_share_a_sum_whoever_pays(tree: Tree) -> None:
    first, second = tree.below
    assert tree.calls(first, amount=60) == "allow"
    assert tree.calls(second, amount=60) == "deny sum"
    assert tree.calls(tree.root, amount=41) == "deny sum"
    assert tree.totals() == [(60_000_000, 0)]


def test_what_the_root_pays_counts_for_those_below(tree: Tree) -> None:
    assert tree.calls(tree.root, amount=90) == "allow"
    assert tree.calls(tree.below[0], amount=11) == "deny sum"
    assert tree.calls(tree.below[1], amount=10) == "allow"


def test_replies_that_are_ready_at_the_same_time_do_not_both_pass(tree: Tree) -> None:
    replies = [tree.reply(run, amount=60) for run in tree.below]
    outcomes = [tree.decided(tree.submit(run, reply)) for run, reply in zip(tree.below, replies, strict=True)]
    assert outcomes == ["allow", "deny sum"]


def test_a_run_that_has_ended_still_counts(tree: Tree) -> None:
    tree.calls(tree.below[0], amount=60)
    tree.submit(tree.below[0], cancel())
    assert tree.calls(tree.below[1], amount=60) == "deny sum"


def test_calls_of_one_reply_count_for_one_another_and_later_ones(tree: Tree) -> None:
    run = tree.below[0]
    made = [ToolCall(id=f"c{at}", name="pay", input=json.dumps({"amount": at})) for at in (60, 50, 40)]
    verdicts, cases = decide_calls(tree.rules(run), run.state.facts, "t", made)
    events = tree.submit(run, answered(run.state, "", *made, verdicts=verdicts, cases=cases))
    outcomes = [event.verdict.outcome for event in events if isinstance(event, ApprovalDecided)]
    assert outcomes == ["allow", "deny", "allow"]
    assert tree.totals() == [(100_000_000, 0)]


def test_a_verdict_has_the_totals_that_it_rests_on(tree: Tree) -> None:
    tree.calls(tree.below[0], amount=60)
    events = tree.submit(tree.below[1], tree.reply(tree.below[1], amount=1))
    (decided,) = (event for event in events if isinstance(event, ApprovalDecided))
    assert [total.amount for total in decided.verdict.tree_totals] == [60_000_000]


def test_two_calls_that_wait_do_not_both_pass_a_limit(tmp_path: Path) -> None:
    tree = Tree(tmp_path, UNDER_100, ASK)
    first, second = tree.below
    assert tree.calls(first, amount=80) == "ask ask"
    assert tree.totals() == [(0, 80_000_000)]
    assert tree.calls(second, amount=80) == "deny sum"
    tree.gives(first, approved=True)
    assert tree.totals() == [(80_000_000, 0)]


@pytest.mark.parametrize("ending", ["deny", "expiry", "cancel"])
def test_what_is_not_approved_counts_no_more(ending: str, tmp_path: Path) -> None:
    tree = Tree(tmp_path, UNDER_100, ASK)
    first, second = tree.below
    tree.calls(first, amount=80)
    if ending == "deny":
        tree.gives(first, approved=False)
    else:
        tree.submit(first, cancel() if ending == "cancel" else RunTimerFired(at_ms=NOW + 60_000))
    assert tree.totals() == []
    assert tree.calls(second, amount=80) == "ask ask"


def test_a_call_that_only_waits_does_not_allow_another(tmp_path: Path) -> None:
    ask = {**ASK, "tools": ["test"]}
    tree = Tree(tmp_path, AFTER_TEST, NEVER, ask)
    first, second = tree.below
    assert tree.calls(first, "test") == "ask ask"
    assert tree.calls(tree.root) == "deny never"
    tree.gives(first, approved=True)
    assert tree.calls(second) == "allow tested"


def test_counts_are_of_earlier_calls(tmp_path: Path) -> None:
    tree = Tree(tmp_path, TWO_TRIES, below=3)
    assert [tree.calls(run) for run in tree.below] == ["allow", "allow", "deny tries"]


def test_the_cost_of_all_runs_is_compared(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {"name": "dear", "then": "deny", "when": [{"spent": True, "greater_than": 1.5}]})
    first, second = tree.below
    assert tree.calls(first, "read", cost_micros=1_000_000) == "allow"
    assert tree.calls(tree.root, "read", cost_micros=500_000) == "allow"
    assert tree_totals(tree.root.state.facts).spent_micros == 1_500_000
    assert tree.calls(second, "read", cost_micros=1) == "deny dear"


def test_an_answer_without_calls_counts_with_its_cost(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {"name": "dear", "then": "deny", "when": [{"spent": True, "greater_than": 1}]})
    first, second = tree.below
    events = tree.submit(first, answered(first.state, "done", cost_micros=2_000_000, currency="USD"))
    assert events[-1] == TreeCounted(run_id=first.id, spent_micros=2_000_000)
    assert tree.calls(second, "read") == "deny dear"


def test_an_amount_that_cannot_be_read_is_the_largest_until_it_is_denied(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {**UNDER_100, "tools": ["refund"]}, ASK)
    first, second = tree.below
    assert tree.calls(first, amount="much") == "ask ask"
    assert tree.calls(second, "refund") == "deny sum"
    tree.gives(first, approved=False)
    assert tree.totals() == []


# --- the log ---------------------------------------------------------------------------------------------------------


def test_a_decision_and_its_count_are_in_one_batch_or_not_in_the_log(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed(tree.owned, tree.log)
    monkeypatch.setattr(partition_module, "BATCH_DECISIONS_MAX", 1)
    for run in tree.below:
        tree.submit(run, tree.reply(run, amount=10))
    for run in tree.below:
        records = tree.owned.next_batch(200)  # less than one decision: it goes alone, with what belongs to it
        events = [CODEC.decode(record.value or b"") for record in records]
        assert {one.envelope.aggregate for one in events if one.envelope is not None} == {run.id, ROOT}
        tree.owned.acknowledged(tree.log.put(EVENTS, 0, records))
    assert tree.owned.next_batch(MAX_BATCH_BYTES) == ()


def test_the_fold_of_the_log_has_the_same_totals(tmp_path: Path) -> None:
    tree = Tree(tmp_path, UNDER_100, ASK)
    tree.calls(tree.below[0], amount=30)
    tree.calls(tree.below[1], amount=40)
    tree.gives(tree.below[0], approved=True)
    flushed(tree.owned, tree.log)
    states: dict[str, Any] = {}
    for record in tree.log.records[EVENTS, 0][1:]:  # after the Claim
        decoded = CODEC.decode(record.value or b"")
        assert decoded.envelope is not None
        name = decoded.envelope.aggregate
        states[name] = evolve(states.get(name, Absent(run_id=name)), decoded.record, decoded.envelope.at_ms)
    assert states == {run.id: run.state for run in (tree.root, *tree.below)}


def test_runs_without_such_a_rule_have_no_further_event(tmp_path: Path) -> None:
    for tree in (Tree(tmp_path, UNDER_100, reach="run"), Tree(tmp_path)):
        run = tree.below[0]
        before = tree.root.seq
        tree.submit(
            run,
            tree.reply(run, amount=1, cost_micros=5)
            if run.state.facts.definition.approvals
            else answered(run.state, "", ToolCall(id="c", name="pay", input="{}")),
        )
        assert tree.root.seq == before


def test_a_sub_agents_sum_of_its_own_run_is_not_known_as_before(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {**UNDER_100, "tools": ["pay"]}, reach="run")
    assert tree.calls(tree.below[0], amount=1) == "deny sum undecided"


# --- what cannot be counted ------------------------------------------------------------------------------------------


def test_without_its_root_nothing_that_counts_is_allowed(tmp_path: Path) -> None:
    tree = Tree(tmp_path, {**UNDER_100, "tools": ["refund"]}, TWO_TRIES, below=3)
    tree.submit(tree.root, cancel())
    first, second, third = tree.below
    assert tree.calls(first, "refund", amount=1) == "deny sum undecided"
    assert tree.calls(second, amount=1) == "deny tries undecided"
    assert tree.calls(third, "read") == "allow"
    few = {"name": "few", "then": "allow", "when": [{"count": ["pay"], "at_most": 3}]}
    tree = Tree(tmp_path, few, NEVER)
    tree.submit(tree.root, cancel())
    assert tree.calls(tree.below[0]) == "deny never"
    tree = Tree(tmp_path, {**UNDER_100, "tools": ["refund"]})
    tree.submit(tree.root, cancel())
    events = tree.submit(tree.below[0], tree.reply(tree.below[0], amount=1))
    assert next(event.verdict.reason for event in events if isinstance(event, ApprovalDecided)) == NOT_COUNTED


def test_a_root_in_quarantine_counts_and_one_that_cannot_be_folded_allows_nothing(tree: Tree) -> None:
    tree.submit(tree.root, quarantine())
    assert tree.calls(tree.below[0], amount=60) == "allow"
    assert tree.totals() == [(60_000_000, 0)]
    tree.root.pending_events = True
    assert tree.calls(tree.below[1], amount=1) == "deny sum undecided"


def test_imported_histories_count_in_the_events_of_their_root(tree: Tree) -> None:
    run = tree.below[0]
    before = run.state
    tree.calls(run, amount=60)
    imported = replace(before, facts=replace(before.facts, imported_events=3))
    assert count_in_root(before, run.state, tree.root.state) is not None
    assert count_in_root(imported, run.state, tree.root.state) is None
    root = replace(tree.root.state, facts=replace(tree.root.state.facts, imported_events=3))
    assert count_in_root(before, run.state, root) is None


def test_a_reply_that_is_handed_over_is_decided_with_the_totals_of_that_moment(tree: Tree) -> None:
    first, second = tree.below
    late = tree.reply(first, amount=60)
    command = encode_result(CommandEnvelope(command_id="h", tenant="t", subject="o"), first.id, late)
    assert command is not None
    tree.calls(second, amount=60)
    handed = decode_result(CODEC.decode(CODEC.encode(command)).record, NOW)
    assert tree.decided(tree.submit(first, handed)) == "deny sum"


def test_a_call_that_a_hook_changed_is_not_made_where_the_tree_decides(tree: Tree) -> None:
    run = tree.below[0]
    tree.calls(run, amount=10)
    assert isinstance(run.state, AwaitingTools)
    why = denies_changed(tree.rules(run), run.state, "t", 0, "pay", '{"amount": 5}')
    assert why.startswith(HOOK_CHANGED)
