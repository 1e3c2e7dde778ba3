"""Timers of a run: its deadline, the timeout of a wait for a child, a person or a channel, the idle time after which it
closes.

`next_timer_at` derives the next of these times from the state alone, so nothing is stored: the owner wakes the run
then, and a new owner derives it again.
"""

from loomlog.services.core.run.state import AwaitingModel, AwaitingTools, Compacting, State
from loomlog.services.core.run.subagents import children
from loomlog.services.core.run.tools.waits import expires_at


def next_timer_at(state: State) -> int:
    """Return the time of the next timer in UTC milliseconds; 0 = never."""
    if isinstance(state, AwaitingModel):
        return state.facts.deadline_ms  # this state waits for no child and no person
    questions = state.questions if isinstance(state, AwaitingTools) else ()
    expiries = [question.expires_at_ms for question in questions]
    if isinstance(state, AwaitingTools):
        expiries += [expires_at(opened.wait) for opened in state.open if opened.wait is not None]
    times = [at_ms for at_ms in (active_deadline(state), children.next_timer_at(state), *expiries) if at_ms]
    return min(times) if times else 0


def active_deadline(state: State) -> int:
    """Return the deadline of the run; 0 = never, and while its clock is stopped: the run is parked, paused, or waits
    for people and channels only.
    """
    if isinstance(state, AwaitingTools) and state.idle_since_ms:
        return 0
    if isinstance(state, (AwaitingModel, AwaitingTools, Compacting)):
        return state.facts.deadline_ms
    return 0


def is_past_deadline(state: State, at_ms: int) -> bool:
    """Whether the deadline of the run has passed."""
    deadline_ms = active_deadline(state)
    return 0 < deadline_ms <= at_ms
