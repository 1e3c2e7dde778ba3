"""Questions that a tool asks people in the middle of a call: the call waits as a question, and is made again.

    the tool answers "ask first"    CallAsks --> InterruptionOpened, and the call is a question of the run
    a person answers or declines    InterruptionClosed, and the next attempt, which has all answers so far
    its time is over                the same, with an answer that says so
    a new owner                     a question whose call is held open by the lost process is closed: the call is lost;
                                    any other goes on to wait

Nothing is under way while a call asks, so the clock of the run stops. The answers are in the state with what the tool
gave along (`call_state`), until the call has a result.

Before: services/runtime/tools/tool_calls.py prepares CallAsks; interruptions.py has the answer and the time. After:
services/core/run/interrupts/evolve_questions.py folds the events.
"""

import hashlib

from loomlog.schemas.generated.run_events import Event, InterruptionClosed, InterruptionOpened, ToolCallRequested
from loomlog.schemas.records import copy_as
from loomlog.services.core.run.commands import CallAsks
from loomlog.services.core.run.interrupts.questions import CALL_QUESTION, CANCELLED, Question
from loomlog.services.core.run.state import AwaitingTools, OpenCall, State, find_open_call
from loomlog.services.core.run.tools import hook_events
from loomlog.services.core.run.tools.unknown_outcome import next_tool_attempt, recover_lost_call


def ask_about_call(state: State, result: CallAsks) -> list[Event]:
    """Open the question of a call; nothing if its attempt is not open."""
    if not isinstance(state, AwaitingTools) or state.turn != result.turn:
        return []
    opened = find_open_call(state, result.index)
    if opened is None or opened.attempt != result.attempt or opened.wait is not None or opened.delegation is not None:
        return []
    place = f"{state.facts.run_id}:{result.turn}.{result.index}.{result.attempt}"
    return [
        *hook_events.hook_events(result.turn, opened, result.hook_acts),
        copy_as(
            InterruptionOpened,
            result,
            call_id=opened.call.id,
            interrupt_id=f"intr_{hashlib.sha256(place.encode()).hexdigest()[:24]}",
            kind=CALL_QUESTION,
            expires_at_ms=result.at_ms + result.timeout_ms,
        ),
    ]


def call_again(turn: int, question: Question) -> ToolCallRequested:
    """Return the next attempt of a call whose question is over."""
    return next_tool_attempt(turn, reopened(question))


def reopened(question: Question) -> OpenCall:
    """Return the call of a question as it was when it asked."""
    return copy_as(OpenCall, question)


def recover_held_calls(state: AwaitingTools) -> list[Event]:
    """Close the questions whose calls the lost owner held open; what follows is that of any call that is lost."""
    events: list[Event] = []
    for question in state.questions:
        if question.is_held:
            events.append(
                InterruptionClosed(
                    turn=state.turn,
                    index=question.index,
                    call_id=question.call.id,
                    interrupt_id=question.interrupt_id,
                    status=CANCELLED,
                )
            )
            events += recover_lost_call(state, reopened(question))
    return events
