"""Approvals: what the rules of a run say about a call, and the people who approve it, before it is made.

    the model calls a tool --> ApprovalDecided   allow: ToolCallRequested, the call is due
                                                 deny:  its result is an error with the rule's reason
                                                 ask:   InterruptionOpened of kind approval, and the call waits
    a person approves      --> ApprovalGiven     with the last one that is needed: closed, and the call is due
    a person denies        --> ApprovalGiven, closed, and its result is an error
    time is over           --> ApprovalEscalated to the next group; without one, closed and denied

A run without rules has none of these events. Rules are evaluated where arguments are in plaintext
(services/runtime/tools/approval_verdicts.py); here their verdict is recorded in the decision that schedules the call.
The fold refuses a call that has no permission (evolve_approvals.py), so no history can have one.

Before: services/core/run/turns/model_result.py for calls, services/core/run/decide.py for people and timers. After:
services/core/run/react.py starts the calls that are due.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Protocol

from loomlog.schemas.approval_policy import ALLOW, ASK, DENY
from loomlog.schemas.generated.run_events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalGiven,
    CommandRefused,
    Event,
    InterruptionClosed,
    InterruptionOpened,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import ApprovalVote, CallVerdict
from loomlog.schemas.records import Value
from loomlog.services.core.approvals.tree_totals import resolve_verdicts
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import GiveApprovalCommand, ModelAnswered
from loomlog.services.core.run.interrupts.interruptions import interrupt_id_for
from loomlog.services.core.run.interrupts.questions import (
    APPROVAL,
    DECLINED,
    RESOLVED,
    TIMED_OUT,
    CallDecision,
    Question,
)
from loomlog.services.core.run.interrupts.tree_counts import tree_totals
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools, LiveState, State

PENDING = "pending"
"""Status of an approval for which more people are needed."""
DENIED = "denied"
"""Outcome of a call that rules or people have denied."""
NOT_EVALUATED = "the rules of this run were not evaluated for the call"
ARGUMENTS_TOO_LONG = "its arguments are too long to be shown to the people who would have to approve it"


class AskedApproval(Value, frozen=True, kw_only=True):
    """A call about which a group of people is asked."""

    interrupt_id: str
    tool: str
    verdict: CallVerdict
    arguments_sha256: str
    question: Question
    group: int = 0


def asked_approval(state: State, event: InterruptionOpened | ApprovalEscalated) -> AskedApproval | None:
    """Return whom an event asks, from the state after it; None: no one, or it is over or the next group's already."""
    number = event.group if isinstance(event, ApprovalEscalated) else 0
    for question in _pending(state):
        if (question.interrupt_id, question.group) == (event.interrupt_id, number):
            assert isinstance(state, AwaitingTools)
            decision = decision_of(state, question.index)
            assert decision is not None
            return AskedApproval(
                interrupt_id=question.interrupt_id,
                tool=question.call.name,
                verdict=decision.verdict,
                arguments_sha256=decision.arguments_sha256,
                question=question,
                group=number,
            )
    return None


# --- rules -----------------------------------------------------------------------------------------------------------


def verdicts_of(facts: RunFacts, result: ModelAnswered) -> Mapping[int, CallVerdict]:
    """Return the verdicts about the calls of a reply by their places, with the totals of the tree as they are now."""
    tree = tree_totals(facts) if facts.parent is None else result.tree
    return {verdict.index: verdict for verdict in resolve_verdicts(result.verdicts, result.cases, tree)}


def decide_call(facts: RunFacts, result: ModelAnswered, index: int, verdict: CallVerdict | None) -> list[Event]:
    """Return the events of a call of a run with rules: the verdict, and what follows from it."""
    call = result.tool_calls[index]
    if verdict is None:
        verdict = CallVerdict(index=index, outcome=DENY, reason=NOT_EVALUATED, is_undecided=True)
    if verdict.outcome == ASK and len(call.input) > limits.CONTEXT_CHARACTERS_MAX:
        verdict = CallVerdict(
            index=index,
            outcome=DENY,
            source=verdict.source,
            policy_sha256=verdict.policy_sha256,
            rule=verdict.rule,
            reason=ARGUMENTS_TOO_LONG,
        )
    interrupt_id = interrupt_id_for(facts.run_id, result.turn, index) if verdict.outcome == ASK else ""
    decided = ApprovalDecided(
        turn=result.turn,
        index=index,
        call_id=call.id,
        tool=call.name,
        verdict=verdict,
        arguments_sha256=arguments_sha256(call.input),
        interrupt_id=interrupt_id,
        effect_class=result.effect_classes[index],
        reconcilable=bool(result.reconcilable) and result.reconcilable[index],
    )
    if verdict.outcome == ALLOW:
        return [decided, _requested(result.turn, decided)]
    if verdict.outcome != ASK:
        text = f"denied by the rule {verdict.rule}" if verdict.rule else "denied"
        return [decided, _denied(result.turn, index, call.id, f"{text}: {verdict.reason}" if verdict.reason else text)]
    return [
        decided,
        InterruptionOpened(
            turn=result.turn,
            index=index,
            call_id=call.id,
            interrupt_id=interrupt_id,
            kind=APPROVAL,
            question=verdict.question,
            context=call.input,  # the very text that is executed
            expires_at_ms=result.at_ms + verdict.groups[0].within_ms,
        ),
    ]


def arguments_sha256(stored: str) -> str:
    """Return the hex SHA-256 of arguments as the log has them: of the token, where content is encrypted."""
    return hashlib.sha256(stored.encode(errors="surrogatepass")).hexdigest()


# --- people ----------------------------------------------------------------------------------------------------------


def give_approval(state: State, request: GiveApprovalCommand) -> list[Event]:
    """Return the events of a person's decision, without what follows in the turn; a refusal if it has no effect."""
    if not isinstance(state, LiveState):
        return []
    command = request.command
    closed = next((one for one in state.facts.closed_questions if one.interrupt_id == command.interrupt_id), None)
    if closed is not None:
        if closed.resolution_id and closed.resolution_id == command.envelope.command_id:
            return []  # a retry: its sender did not receive the first reply
        return [_refused("approval_closed", f"{closed.interrupt_id} is {closed.status} already")]
    question = next((one for one in _pending(state) if one.interrupt_id == command.interrupt_id), None)
    if question is None:
        return [_refused("not_found", f"{state.facts.run_id} has no approval {command.interrupt_id[:80]}")]
    assert isinstance(state, AwaitingTools)
    decision = decision_of(state, question.index)
    assert decision is not None
    if request.at_ms >= question.expires_at_ms:
        return _out_of_time(state.turn, question, decision, request.at_ms)
    if any(vote.command_id == command.envelope.command_id for vote in question.votes):
        return []
    refused = _vote_refusal(state.facts, question, decision, request)
    return [refused] if refused is not None else _with_vote(state.turn, question, decision, request)


def _vote_refusal(
    facts: RunFacts, question: Question, decision: CallDecision, request: GiveApprovalCommand
) -> CommandRefused | None:
    command, group = request.command, decision.verdict.groups[question.group]
    subject = command.envelope.subject
    if not is_approver(group, subject, command.scopes):
        return _refused("not_an_approver", f"{question.interrupt_id}: the rule {decision.verdict.rule} names others")
    if decision.verdict.not_requester and subject in (facts.subject, facts.user_id):
        return _refused("not_an_approver", f"{question.interrupt_id}: who has requested the run may not approve it")
    if command.arguments_sha256 not in ("", decision.arguments_sha256):
        return _refused(
            "approval_mismatch", f"{question.interrupt_id}: the arguments are others than those; read them again"
        )
    if command.is_approved and any(vote.by == subject for vote in question.votes):
        return _refused("already_approved", f"{question.interrupt_id}: {subject} has approved it, and counts once")
    if command.is_approved and facts.pauses:
        return _refused("run_paused", f"{facts.run_id} is paused, and the call would be made: resume it first")
    return None


class Approvers(Protocol):
    """A group of people who may approve a call: they are named, or hold one of some scopes."""

    @property
    def subjects(self) -> Collection[str]: ...
    @property
    def scopes(self) -> Collection[str]: ...


def is_approver(group: Approvers, subject: str, scopes: Collection[str]) -> bool:
    """Whether a person with these scopes is in the group."""
    return bool(subject) and (subject in group.subjects or not set(group.scopes).isdisjoint(scopes))


def _with_vote(turn: int, question: Question, decision: CallDecision, request: GiveApprovalCommand) -> list[Event]:
    command = request.command
    vote = ApprovalVote(
        by=command.envelope.subject,
        is_approved=command.is_approved,
        reason=command.reason,
        surface=command.surface,
        at_ms=request.at_ms,
        command_id=command.envelope.command_id,
    )
    votes = (*question.votes, vote)
    is_enough = len({one.by for one in votes}) >= decision.verdict.groups[question.group].approvals
    vote_event = ApprovalGiven(
        turn=turn,
        index=question.index,
        call_id=question.call.id,
        interrupt_id=question.interrupt_id,
        votes=votes,
        status=DECLINED if not command.is_approved else RESOLVED if is_enough else PENDING,
    )
    if not command.is_approved:
        text = f"denied by {vote.by}; do not try again without another instruction"
        return [
            vote_event,
            _closed(turn, question, DECLINED, vote),
            _denied(turn, question.index, question.call.id, text),
        ]
    if not is_enough:
        return [vote_event]
    return [vote_event, _closed(turn, question, RESOLVED, vote), _requested(turn, decision)]


# --- time ------------------------------------------------------------------------------------------------------------


def expire_approvals(state: AwaitingTools, at_ms: int) -> list[Event]:
    """Return the events of approvals whose time is over: the next group is asked, or the call is denied."""
    events: list[Event] = []
    for question in _pending(state):
        decision = decision_of(state, question.index)
        if question.expires_at_ms <= at_ms and decision is not None:
            events += _out_of_time(state.turn, question, decision, at_ms)
    return events


def _out_of_time(turn: int, question: Question, decision: CallDecision, at_ms: int) -> list[Event]:
    following = question.group + 1
    if following < len(decision.verdict.groups):
        return [
            ApprovalEscalated(
                turn=turn,
                index=question.index,
                call_id=question.call.id,
                interrupt_id=question.interrupt_id,
                group=following,
                expires_at_ms=at_ms + decision.verdict.groups[following].within_ms,
            )
        ]
    text = f"denied: {question.interrupt_id} was not approved in time"
    return [_closed(turn, question, TIMED_OUT), _denied(turn, question.index, question.call.id, text)]


# --- parts -----------------------------------------------------------------------------------------------------------


def decision_of(state: AwaitingTools, index: int) -> CallDecision | None:
    """Return what was decided about the call at that index of the turn; None without rules."""
    return next((one for one in state.decisions if one.index == index), None)


def _pending(state: State) -> list[Question]:
    questions = state.questions if isinstance(state, AwaitingTools) else ()
    return [one for one in questions if one.kind == APPROVAL]


def _refused(code: str, message: str) -> CommandRefused:
    return CommandRefused(code=code, message=message)


def _requested(turn: int, decision: ApprovalDecided | CallDecision) -> ToolCallRequested:
    return ToolCallRequested(
        turn=turn,
        index=decision.index,
        call_id=decision.call_id,
        effect_class=decision.effect_class,
        reconcilable=decision.reconcilable,
    )


def _denied(turn: int, index: int, call_id: str, text: str) -> ToolReturned:
    return ToolReturned(turn=turn, index=index, call_id=call_id, text=text, is_error=True, outcome=DENIED)


def _closed(turn: int, question: Question, status: str, vote: ApprovalVote | None = None) -> InterruptionClosed:
    return InterruptionClosed(
        turn=turn,
        index=question.index,
        call_id=question.call.id,
        interrupt_id=question.interrupt_id,
        status=status,
        by=vote.by if vote is not None else "",
        resolution_id=vote.command_id if vote is not None else "",
    )
