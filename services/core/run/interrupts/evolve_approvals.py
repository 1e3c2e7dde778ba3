"""State after an event of an approval. A call without permission cannot follow: that history is not accepted.

Before: services/core/run/evolve.py. After: AwaitingTools, whose `decisions` say which calls may be made.
"""

from collections.abc import Sequence

from loomlog.schemas.approval_policy import ALLOW
from loomlog.schemas.generated.run_events import ApprovalDecided, ApprovalEscalated, ApprovalGiven
from loomlog.schemas.generated.values import MeterAmount
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.approvals.evaluation import AMOUNT_MAX
from loomlog.services.core.approvals.tree_totals import changes_at_end, changes_of
from loomlog.services.core.run.interrupts.approvals import arguments_sha256
from loomlog.services.core.run.interrupts.questions import APPROVAL, CallDecision, Question
from loomlog.services.core.run.interrupts.tree_counts import with_changes
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools, CallResult, IllegalEvent, OpenCall, State


def apply_approval_decided(state: State, event: ApprovalDecided) -> AwaitingTools:
    """Record the verdict; a call that is allowed counts for the rules from now on."""
    place = f"{event.turn}.{event.index}"
    if (
        not isinstance(state, AwaitingTools)
        or state.turn != event.turn
        or not 0 <= event.index < len(state.requested_calls)
        or event.index != event.verdict.index
        or not state.facts.definition.approvals
    ):
        raise IllegalEvent(f"a verdict about the call {place} that the model did not ask for")
    begun: tuple[CallDecision | OpenCall | CallResult, ...] = (*state.decisions, *state.open, *state.results)
    if any(one.index == event.index for one in begun):
        raise IllegalEvent(f"a second verdict about the call {place}")
    if event.arguments_sha256 != arguments_sha256(state.requested_calls[event.index].input):
        raise IllegalEvent(f"a verdict about other arguments than those of the call {place}")
    decision = copy_as(CallDecision, event)
    facts = state.facts
    if event.verdict.tree_amounts:
        facts = with_changes(facts, changes_of(event.verdict))
    state = replace(state, facts=facts, decisions=(*state.decisions, decision))
    return permit(state, event.index) if event.verdict.outcome == ALLOW else state


def apply_approval_given(state: State, event: ApprovalGiven) -> AwaitingTools:
    awaiting, question = _pending_question(state, event)
    return _with_question(awaiting, replace(question, votes=event.votes))


def apply_approval_escalated(state: State, event: ApprovalEscalated) -> AwaitingTools:
    """Ask the next group; what people of the one before have said does not count for it."""
    awaiting, question = _pending_question(state, event)
    if event.group != question.group + 1:
        raise IllegalEvent(f"{event.interrupt_id} is escalated from group {question.group} to {event.group}")
    return _with_question(awaiting, replace(question, group=event.group, votes=(), expires_at_ms=event.expires_at_ms))


def end_approval(state: AwaitingTools, index: int, *, is_approved: bool) -> AwaitingTools:
    """Return the state after the approval of a call has ended: approved, or in any other way."""
    verdict = next(one.verdict for one in state.decisions if one.index == index)
    if verdict.tree_amounts:
        changes = changes_at_end(verdict, is_approved=is_approved)
        state = replace(state, facts=with_changes(state.facts, changes))
    return permit(state, index) if is_approved else state


def permit(state: AwaitingTools, index: int) -> AwaitingTools:
    """Return the state in which a call may be made, and counts."""
    decisions = tuple(replace(one, is_permitted=True) if one.index == index else one for one in state.decisions)
    verdict = next(one.verdict for one in decisions if one.index == index)
    return replace(state, decisions=decisions, facts=_with_amounts(state.facts, verdict.amounts))


def require_permission(state: AwaitingTools, turn: int, index: int) -> None:
    """Raise IllegalEvent when the rules of the run have not permitted a call."""
    if state.facts.definition.approvals and not any(one.index == index and one.is_permitted for one in state.decisions):
        raise IllegalEvent(f"the tool call {turn}.{index} is due without an approval before it")


def _with_amounts(facts: RunFacts, amounts: Sequence[MeterAmount]) -> RunFacts:
    if not amounts:
        return facts
    totals = {total.meter: total.amount for total in facts.totals}
    for one in amounts:
        totals[one.meter] = min(AMOUNT_MAX, totals.get(one.meter, 0) + one.amount)
    return replace(facts, totals=tuple(MeterAmount(meter=meter, amount=totals[meter]) for meter in sorted(totals)))


def _pending_question(state: State, event: ApprovalGiven | ApprovalEscalated) -> tuple[AwaitingTools, Question]:
    for question in state.questions if isinstance(state, AwaitingTools) and state.turn == event.turn else ():
        if question.interrupt_id == event.interrupt_id and question.kind == APPROVAL:
            assert isinstance(state, AwaitingTools)
            return state, question
    raise IllegalEvent(f"{type(event).__name__}: {event.interrupt_id} does not wait for an approval")


def _with_question(state: AwaitingTools, question: Question) -> AwaitingTools:
    questions = tuple(question if one.interrupt_id == question.interrupt_id else one for one in state.questions)
    return replace(state, questions=questions)
