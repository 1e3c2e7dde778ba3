"""The auditor finds a call of a run with rules that was made without its approval."""

from typing import Any

import pytest

from loomlog.schemas.generated.run_events import (
    ApprovalDecided,
    InterruptionClosed,
    RunCancelled,
    RunStarted,
    ToolCallRequested,
)
from loomlog.schemas.generated.values import AgentDefinition, ApprovalPolicy, CallVerdict, Usage
from tests.services.core.audit.written import Log, run_audit

RULES = (ApprovalPolicy(source="file", sha256="f0", text="{}"),)


def started(*, has_rules: bool = True) -> RunStarted:
    definition = AgentDefinition(name="a", provider="p", model="m", approvals=RULES if has_rules else ())
    return RunStarted(session_id="s", agent_id="a", definition=definition, segments=())


def decided(outcome: str, index: int = 0, turn: int = 1) -> ApprovalDecided:
    verdict = CallVerdict(index=index, outcome=outcome)
    return ApprovalDecided(
        turn=turn, index=index, call_id="c", verdict=verdict, arguments_sha256="0", effect_class="unsafe"
    )


def called(index: int = 0, turn: int = 1, attempt: int = 1) -> ToolCallRequested:
    return ToolCallRequested(turn=turn, index=index, call_id="c", effect_class="unsafe", attempt=attempt)


def closed(status: str) -> InterruptionClosed:
    return InterruptionClosed(turn=1, index=0, call_id="c", interrupt_id="i", status=status)


def findings(*events: Any) -> list[str]:
    log = Log()
    log.claim()
    log.add("r_a-1", *events)
    log.sign()
    return [finding.detail for finding in run_audit(log.records, log.checkpoints)[0].findings]


@pytest.mark.parametrize(
    "events",
    [
        (decided("allow"), called()),
        (decided("allow"), called(), called(attempt=2)),
        (decided("ask"), closed("resolved"), called()),
        (decided("deny"),),
        (decided("ask"), closed("timed_out")),
    ],
)
def test_calls_after_their_approval_are_in_order(events: tuple[Any, ...]) -> None:
    assert findings(started(), *events, RunCancelled(reason="enough", usage=Usage())) == []


@pytest.mark.parametrize(
    "events",
    [
        (called(),),
        (called(), decided("allow")),
        (decided("deny"), called()),
        (decided("ask"), called()),
        (decided("ask"), closed("declined"), called()),
        (decided("ask"), closed("timed_out"), called()),
        (decided("allow", index=1), called()),
        (decided("allow"), called(turn=2)),
    ],
)
def test_a_call_without_its_approval_is_found(events: tuple[Any, ...]) -> None:
    (detail,) = findings(started(), *events)
    assert "is due without an approval before it" in detail


def test_runs_without_rules_are_not_looked_at() -> None:
    assert findings(started(has_rules=False), called()) == []
