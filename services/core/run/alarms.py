"""What a run does although nothing happens: it fails when its time is over.

`wakes_at` names the next such time from the state alone, so nothing has to be kept: the owner wakes the run then, and a
new owner asks the state again.
"""

from services.core.run.state import AwaitingModel, AwaitingTools, State


def wakes_at(state: State) -> int:
    """UTC milliseconds; 0 = never. While a run is parked or held by a pause its time stands still."""
    if isinstance(state, AwaitingModel | AwaitingTools):
        return state.facts.deadline_ms
    return 0


def is_late(state: State, at_ms: int) -> bool:
    """The time of the run is over."""
    deadline_ms = wakes_at(state)
    return 0 < deadline_ms <= at_ms
