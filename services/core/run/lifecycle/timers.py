"""What a run does although nothing happens: it fails when its time is over, it waits no longer for a child or a person,
it closes when nobody has had a word for it.

`next_timer_at` names the next such time from the state alone, so nothing has to be kept: the owner wakes the run then,
and a new owner asks the state again.
"""

from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Compacting, State
from loomlog.services.core.run.subagents import children


def next_timer_at(state: State) -> int:
    """UTC milliseconds; 0 = never."""
    if isinstance(state, AwaitingModel):
        return state.facts.deadline_ms  # it waits for no child and for nobody
    questions = state.questions if isinstance(state, AwaitingTools) else ()
    expiries = [question.expires_at_ms for question in questions]
    times = [at_ms for at_ms in (active_deadline(state), children.next_timer_at(state), *expiries) if at_ms]
    return min(times) if times else 0


def active_deadline(state: State) -> int:
    """When the time of the run is over; 0 = never, and while it stands still: the run is parked, held by a pause, or
    waits for people only."""
    if isinstance(state, AwaitingTools) and state.idle_since_ms:
        return 0
    if isinstance(state, (AwaitingModel, AwaitingTools, Compacting)):
        return state.facts.deadline_ms
    return 0


def is_past_deadline(state: State, at_ms: int) -> bool:
    """The time of the run is over."""
    deadline_ms = active_deadline(state)
    return 0 < deadline_ms <= at_ms
