"""Whether a run is active: what counts against the limits on runs (services/core/admission.py).

A run is inactive while it is parked, paused, quarantined, ended, only imported, or waits for people and channels only.
A child never counts: its parent, which waits for it, counts for both.
"""

from loomlog.schemas.generated.run_events import (
    ApprovalGiven,
    CallWaiting,
    CompactionRequested,
    InterruptionOpened,
    ModelCallRequested,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunQuarantined,
    RunRefused,
    RunReleased,
    RunRestored,
    ToolOutcomeAsked,
    ToolReturned,
)
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.state import (
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Parked,
    State,
    has_only_waiting_calls,
)

ACTIVITY_EVENTS = frozenset(
    {
        RunRefused,
        RunRestored,
        ModelCallRequested,
        CompactionRequested,
        ToolOutcomeAsked,
        CallWaiting,
        ToolReturned,
        InterruptionOpened,
        ApprovalGiven,
        RunParked,
        RunPaused,
        RunQuarantined,
        RunReleased,
        RunCompleted,
        RunFailed,
        RunCancelled,
    }
)
"""Events that may change whether a run is active. RunStarted always comes with one of them, or with a call."""


def is_active(state: State) -> bool:
    """Whether a call of the run is due or under way and the run is not held."""
    match state:
        case AwaitingModel(facts=facts) | AwaitingTools(facts=facts) | Compacting(facts=facts):
            if facts.parent is not None or facts.quarantine_error or is_importing(state):
                return False
            return not (isinstance(state, AwaitingTools) and has_only_waiting_calls(state))
        case _:
            return False


def is_idle(state: State) -> bool:
    """Whether the run waits for an answer, an input or a message: it counts for its user only."""
    match state:
        case Parked(facts=facts) | AwaitingTools(facts=facts):
            is_held = bool(facts.quarantine_error) or is_importing(state)
            return facts.parent is None and not is_held and not is_active(state)
        case _:
            return False


def may_rest(state: State) -> bool:
    """Whether the run needs nothing but an order of a person or a timer: a root that is parked, or all of whose open
    calls are questions to people. Its state need not be in memory until then.
    """
    match state:
        case Parked(facts=facts):
            pass
        case AwaitingTools(facts=facts, open=(), questions=questions) if questions:
            pass
        case _:
            return False
    is_intact = not facts.quarantine_error and not is_importing(state)
    return is_intact and facts.parent is None and not facts.residents
