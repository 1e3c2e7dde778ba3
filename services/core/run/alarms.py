"""What a run does although nothing happens: it fails when its time is over, and gives up waiting for people.

`wakes_at` names the next such time from the state alone, so nothing has to be kept: the owner wakes the run then, and a
new owner asks the state again.
"""

from services.core.run.state import AwaitingModel, AwaitingTools, State


def wakes_at(state: State) -> int:
    """UTC milliseconds; 0 = never."""
    deadline_ms = _deadline(state)
    if not isinstance(state, AwaitingTools) or not state.questions:
        return deadline_ms
    expires_ms = min(question.expires_at_ms for question in state.questions)
    return min(expires_ms, deadline_ms) if deadline_ms else expires_ms


def is_late(state: State, at_ms: int) -> bool:
    """The time of the run is over."""
    return 0 < _deadline(state) <= at_ms


def _deadline(state: State) -> int:
    """0 while its time stands still: parked, held by a pause, or waiting for people only."""
    if isinstance(state, AwaitingModel):
        return state.facts.deadline_ms
    if isinstance(state, AwaitingTools) and not state.idle_since_ms:
        return state.facts.deadline_ms
    return 0
