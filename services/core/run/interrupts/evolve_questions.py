"""State after an event of a question to a person. The run's clock stops while only people and channels are waited for.

Before: services/core/run/evolve.py. After: AwaitingTools, whose `questions` are the calls that wait for a person.
"""

from loomlog.schemas.generated.run_events import InterruptionClosed, InterruptionOpened, PersonNotified
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.interrupts.evolve_approvals import end_approval
from loomlog.services.core.run.interrupts.questions import (
    APPROVAL,
    CALL_QUESTION,
    RESOLVED,
    CallAnswer,
    ClosedQuestion,
    Question,
    question_of,
)
from loomlog.services.core.run.run_facts import extend_deadline
from loomlog.services.core.run.state import (
    AwaitingTools,
    CallResult,
    IllegalEvent,
    OpenCall,
    State,
    find_open_call,
    has_only_waiting_calls,
)


def apply_question_opened(state: State, event: InterruptionOpened, at_ms: int) -> AwaitingTools:
    if (
        not isinstance(state, AwaitingTools)
        or state.turn != event.turn
        or not 0 <= event.index < len(state.requested_calls)
    ):
        raise IllegalEvent(f"a question {event.turn}.{event.index} that no call of this turn asks")
    if event.kind == CALL_QUESTION:
        return with_idle_time(_with_call_question(state, event), at_ms)
    begun: tuple[CallResult | OpenCall | Question, ...] = (*state.results, *state.open, *state.questions)
    asked = {question.interrupt_id for question in state.questions}
    if event.interrupt_id in asked or any(item.index == event.index for item in begun):
        raise IllegalEvent(f"the call {event.turn}.{event.index} asks a second time, as {event.interrupt_id}")
    if event.kind == APPROVAL and not any(one.index == event.index for one in state.decisions):
        raise IllegalEvent(f"an approval of the call {event.turn}.{event.index} that no rule asks for")
    question = question_of(event, state.requested_calls[event.index])
    return with_idle_time(replace(state, questions=(*state.questions, question)), at_ms)


def apply_person_notified(state: State, event: PersonNotified) -> AwaitingTools:
    """Check the event and leave the state unchanged: the result follows in the same batch."""
    if isinstance(state, AwaitingTools) and state.turn == event.turn and 0 <= event.index < len(state.requested_calls):
        return state
    raise IllegalEvent(f"a notice {event.turn}.{event.index} of a call that the model did not ask for")


def apply_question_closed(state: State, event: InterruptionClosed, at_ms: int) -> AwaitingTools:
    """Close the question; the call's result, or the end of the run, follows in the same batch."""
    left = state.questions if isinstance(state, AwaitingTools) else ()
    left = tuple(item for item in left if item.interrupt_id != event.interrupt_id)
    if not isinstance(state, AwaitingTools) or len(left) == len(state.questions):
        raise IllegalEvent(f"the question {event.interrupt_id} does not wait")
    ended = next(one for one in state.questions if one.interrupt_id == event.interrupt_id)
    settled = ClosedQuestion(
        interrupt_id=event.interrupt_id, status=event.status, resolution_id=event.resolution_id, kind=ended.kind
    )
    facts = replace(
        state.facts, closed_questions=(*state.facts.closed_questions, settled)[-limits.CLOSED_QUESTIONS_KEPT :]
    )
    state = replace(state, facts=facts, questions=left)
    if ended.kind == APPROVAL:
        state = end_approval(state, ended.index, is_approved=event.status == RESOLVED)
    if ended.kind == CALL_QUESTION:
        state = replace(state, open=(*state.open, _answered_call(ended, event)))
    return with_idle_time(state, at_ms)


def _with_call_question(state: AwaitingTools, event: InterruptionOpened) -> AwaitingTools:
    """Make a question of an open call, which asks first."""
    opened = find_open_call(state, event.index)
    if opened is None or opened.attempt != event.attempt or opened.wait is not None or opened.delegation is not None:
        raise IllegalEvent(f"a question of the call {event.turn}.{event.index}, whose attempt is not under way")
    question = replace(
        question_of(event, opened.call),
        effect_class=opened.effect_class,
        reconcilable=opened.reconcilable,
        answers=opened.answers,
    )
    kept = tuple(item for item in state.open if item.index != event.index)
    return replace(state, open=kept, questions=(*state.questions, question))


def _answered_call(question: Question, event: InterruptionClosed) -> OpenCall:
    """Return the call of a question that is over: its next attempt, or its result, follows in the same batch."""
    answer = CallAnswer(
        interrupt_id=question.interrupt_id,
        status=event.status,
        call_state=question.call_state,
        answer=event.answer,
        is_held=question.is_held,
    )
    return copy_as(OpenCall, question, is_unstarted=True, answers=(*question.answers, answer))


def with_idle_time(state: AwaitingTools, at_ms: int) -> AwaitingTools:
    """Stop the run's clock when only people and channels are waited for, and restart it otherwise."""
    if has_only_waiting_calls(state):
        return state if state.idle_since_ms else replace(state, idle_since_ms=at_ms)
    if not state.idle_since_ms:
        return state
    return replace(state, facts=extend_deadline(state.facts, state.idle_since_ms, at_ms), idle_since_ms=0)
