"""Calls of runs with rules: no call without its approval before it, and what people and time decide."""

import json
from typing import Any

import pytest

from loomlog.schemas.generated.run_commands import GiveApproval
from loomlog.schemas.generated.run_events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalGiven,
    CommandRefused,
    InterruptionClosed,
    InterruptionOpened,
    ModelCallRequested,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import ApprovalPolicy, ApproverGroup, CallVerdict, MeterAmount, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import GiveApprovalCommand, RunTimerFired
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.interrupts.approvals import arguments_sha256, asked_approval
from loomlog.services.core.run.interrupts.interruptions import interrupt_id_for
from loomlog.services.core.run.lifecycle.timers import next_timer_at
from loomlog.services.core.run.state import AwaitingTools, Ended, IllegalEvent
from tests.services.core.run.asking import responds
from tests.services.core.run.given import DEFINITION, ENVELOPE, NOW, RUN, Run, answered, begun, cancel, pause, recover

RULED = replace(DEFINITION, approvals=(ApprovalPolicy(source="file", sha256="f0", text='{"rules":[]}'),))
HOUR_MS = 3_600_000
ASKED = CallVerdict(
    index=0,
    outcome="ask",
    source="file",
    policy_sha256="f0",
    rule="large",
    question="May it pay?",
    groups=(ApproverGroup(subjects=("ann", "bob"), scopes=("runs:read",), approvals=2, within_ms=HOUR_MS),),
    amounts=(MeterAmount(meter="m", amount=7),),
)
APPROVAL = interrupt_id_for(RUN, 1, 0)


def calling(*verdicts: CallVerdict, calls: int = 0, definition: Any = RULED, **more: Any) -> Run:
    """A run with rules that has called `pay`, with these verdicts."""
    run = begun(definition, **more)
    made = [ToolCall(id=f"c{at}", name="pay", input=json.dumps({"amount": at})) for at in range(calls or len(verdicts))]
    run.give(answered(run.state, "", *made, verdicts=verdicts))
    return run


def gives(by: str = "ann", *, approved: bool = True, at_ms: int = NOW, command_id: str = "", **more: Any) -> Any:
    envelope = replace(ENVELOPE, command_id=command_id or f"by {by} {approved}", subject=by)
    fields = {"run_id": RUN, "interrupt_id": APPROVAL, "is_approved": approved, **more}
    return GiveApprovalCommand(at_ms=at_ms, command=GiveApproval(envelope=envelope, **fields))


def kinds(run: Run, since: int) -> list[str]:
    return [type(event).__name__ for event in run.events[since:]]


def requested(run: Run) -> list[int]:
    return [event.index for event in run.events if isinstance(event, ToolCallRequested)]


def last(run: Run) -> Any:
    return run.events[-1]


def awaiting(run: Run) -> AwaitingTools:
    assert isinstance(run.state, AwaitingTools)
    return run.state


def test_a_call_that_is_allowed_is_due_after_its_verdict() -> None:
    run = calling(CallVerdict(index=0, outcome="allow", amounts=(MeterAmount(meter="m", amount=2),)))
    assert kinds(run, -2) == ["ApprovalDecided", "ToolCallRequested"]
    assert awaiting(run).facts.totals == (MeterAmount(meter="m", amount=2),)


def test_a_call_that_is_denied_has_its_result_and_the_run_goes_on() -> None:
    run = calling(CallVerdict(index=0, outcome="deny", rule="never", reason="not today"))
    assert kinds(run, -3) == ["ApprovalDecided", "ToolReturned", "ModelCallRequested"]
    result = next(event for event in run.events if isinstance(event, ToolReturned))
    assert (result.text, result.outcome, result.is_error) == ("denied by the rule never: not today", "denied", True)


def test_a_call_without_a_verdict_is_denied_where_there_are_rules() -> None:
    run = calling(calls=1)
    assert requested(run) == []
    decided = next(event for event in run.events if isinstance(event, ApprovalDecided))
    assert (decided.verdict.outcome, decided.verdict.is_undecided) == ("deny", True)


def test_a_run_without_rules_has_no_event_of_approvals() -> None:
    run = calling(calls=1, definition=DEFINITION)
    assert not any(isinstance(event, ApprovalDecided) for event in run.events)
    assert requested(run) == [0]


def test_a_call_that_is_asked_waits_without_a_process() -> None:
    run = calling(ASKED)
    opened = last(run)
    assert isinstance(opened, InterruptionOpened)
    assert (opened.kind, opened.question, opened.context) == ("approval", "May it pay?", '{"amount": 0}')
    assert next_timer_at(run.state) == opened.expires_at_ms == NOW + HOUR_MS
    assert awaiting(run).open == ()
    assert awaiting(run).idle_since_ms == NOW
    asked = asked_approval(run.state, opened)
    assert asked is not None
    assert (asked.interrupt_id, asked.group, asked.question.context) == (APPROVAL, 0, '{"amount": 0}')
    run.give(recover())
    assert requested(run) == []


def test_two_people_approve_and_then_the_call_is_due_with_the_arguments_that_were_shown() -> None:
    run = calling(ASKED)
    run.give(gives("ann", surface="http", reason="known supplier"))
    assert kinds(run, -1) == ["ApprovalGiven"]
    assert awaiting(run).facts.totals == ()
    run.give(gives("carol", scopes=("runs:read",), arguments_sha256=arguments_sha256('{"amount": 0}')))
    assert kinds(run, -3) == ["ApprovalGiven", "InterruptionClosed", "ToolCallRequested"]
    given = run.events[-3]
    assert isinstance(given, ApprovalGiven)
    assert [(vote.by, vote.surface, vote.reason) for vote in given.votes] == [
        ("ann", "http", "known supplier"),
        ("carol", "", ""),
    ]
    assert awaiting(run).facts.totals == ASKED.amounts
    assert awaiting(run).open[0].call.input == '{"amount": 0}'
    assert awaiting(run).idle_since_ms == 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (gives("mallory"), "not_an_approver"),
        (gives(""), "not_an_approver"),
        (gives("mallory", scopes=("substrate:tenant",)), "not_an_approver"),
        (gives("ann", arguments_sha256="0" * 64), "approval_mismatch"),
        (gives("ann", interrupt_id="intr_other"), "not_found"),
        (responds(to=APPROVAL), "approval_needed"),
    ],
)
def test_who_may_not_approve_is_refused_and_nothing_runs(command: Any, code: str) -> None:
    run = calling(ASKED)
    run.give(command)
    assert isinstance(last(run), CommandRefused)
    assert last(run).code == code
    assert requested(run) == []


def test_the_requester_may_not_approve_where_the_rule_says_so() -> None:
    run = calling(replace(ASKED, not_requester=True, groups=(ApproverGroup(subjects=("someone",), within_ms=1),)))
    run.give(gives("someone"))
    assert last(run).code == "not_an_approver"


def test_the_same_person_counts_once() -> None:
    run = calling(ASKED)
    run.give(gives("ann"))
    run.give(gives("ann", command_id="again"))
    assert last(run).code == "already_approved"
    before = len(run.events)
    run.give(gives("ann"))
    assert len(run.events) == before, "a repeated command has its answer already"
    assert requested(run) == []


def test_one_person_who_denies_is_enough_also_after_an_approval_of_theirs() -> None:
    run = calling(ASKED)
    run.give(gives("ann"))
    run.give(gives("ann", approved=False))
    assert kinds(run, -4) == ["ApprovalGiven", "InterruptionClosed", "ToolReturned", "ModelCallRequested"]
    assert run.events[-3].status == "declined"
    assert requested(run) == []


def test_an_approval_after_the_end_of_the_call_is_refused() -> None:
    run = calling(ASKED)
    run.give(gives("ann", approved=False))
    run.give(gives("bob"))
    assert last(run).code == "approval_closed"
    run.give(cancel())
    assert isinstance(run.state, Ended)
    before = len(run.events)
    run.give(gives("bob", command_id="late"))
    assert len(run.events) == before


def test_when_its_time_is_over_the_call_is_denied_also_by_a_late_approval() -> None:
    for command in (RunTimerFired(at_ms=NOW + HOUR_MS), gives("ann", at_ms=NOW + HOUR_MS)):
        run = calling(ASKED)
        run.give(command)
        assert kinds(run, -3) == ["InterruptionClosed", "ToolReturned", "ModelCallRequested"]
        assert run.events[-3].status == "timed_out"


def test_when_the_time_of_a_group_is_over_the_next_one_is_asked() -> None:
    second = ApproverGroup(subjects=("boss",), within_ms=5)
    run = calling(replace(ASKED, groups=(*ASKED.groups, second)))
    run.give(gives("ann"))
    run.give(RunTimerFired(at_ms=NOW + HOUR_MS))
    escalated = last(run)
    assert isinstance(escalated, ApprovalEscalated)
    assert (escalated.group, next_timer_at(run.state)) == (1, NOW + HOUR_MS + 5)
    asked = asked_approval(run.state, escalated)
    assert asked is not None
    assert (asked.tool, asked.group, asked.verdict.groups[asked.group]) == ("pay", 1, second)
    opened = next(event for event in run.events if isinstance(event, InterruptionOpened))
    assert asked_approval(run.state, opened) is None, "the first group is asked no more"
    run.give(gives("bob", at_ms=NOW + HOUR_MS))
    assert last(run).code == "not_an_approver"
    run.give(gives("boss", at_ms=NOW + HOUR_MS))
    assert isinstance(last(run), ToolCallRequested)
    run = calling(replace(ASKED, groups=(*ASKED.groups, second)))
    run.give(RunTimerFired(at_ms=NOW + HOUR_MS))
    run.give(RunTimerFired(at_ms=NOW + HOUR_MS + 5))
    assert isinstance(last(run), ModelCallRequested)
    assert requested(run) == []


def test_a_paused_run_makes_no_approved_call() -> None:
    run = calling(ASKED)
    run.give(pause())
    run.give(gives("ann"))
    assert last(run).code == "run_paused"
    run.give(gives("ann", approved=False))
    assert any(isinstance(event, ToolReturned) for event in run.events)


def test_the_end_of_a_run_closes_its_approvals() -> None:
    run = calling(ASKED)
    run.give(cancel())
    closed = [event for event in run.events if isinstance(event, InterruptionClosed)]
    assert [event.status for event in closed] == ["cancelled"]


def test_arguments_that_cannot_be_shown_are_denied() -> None:
    run = begun(RULED)
    long = ToolCall(id="c0", name="pay", input=json.dumps("x" * limits.CONTEXT_CHARACTERS_MAX))
    run.give(answered(run.state, "", long, verdicts=(ASKED,)))
    assert requested(run) == []
    assert "too long" in next(event.text for event in run.events if isinstance(event, ToolReturned))


def test_a_history_with_a_call_that_nobody_has_approved_is_refused() -> None:
    run = calling(ASKED)
    forged = ToolCallRequested(turn=1, index=0, call_id="c0", effect_class="unsafe")
    with pytest.raises(IllegalEvent, match=r"1\.0 is due without an approval"):
        evolve(run.state, forged, NOW)
    other = replace(next(e for e in run.events if isinstance(e, ApprovalDecided)), arguments_sha256="0" * 64)
    before = begun(RULED)
    before.give(answered(before.state, "", ToolCall(id="c0", name="pay", input="{}"), verdicts=(ASKED,)))
    with pytest.raises(IllegalEvent, match="a second verdict"):
        evolve(before.state, other, NOW)
    with pytest.raises(IllegalEvent, match="other arguments"):
        evolve(replace(awaiting(before), decisions=()), other, NOW)


def test_a_further_attempt_of_an_approved_call_needs_no_second_approval() -> None:
    run = begun(RULED)
    call = ToolCall(id="c0", name="pay", input="{}")
    allow = CallVerdict(index=0, outcome="allow")
    run.give(answered(run.state, "", call, verdicts=(allow,), effect_classes=("read",)))
    run.give(recover())
    assert [event.attempt for event in run.events if isinstance(event, ToolCallRequested)] == [1, 2]
