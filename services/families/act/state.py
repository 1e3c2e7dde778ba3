"""The state of an act: how far it is, and what it is about.

    begun     it is in the log, and being carried out
    done, refused, unknown

Before: decide.py. After: projections/acts.py has the acts to be read.
"""

from typing import assert_never

from loomlog.schemas.generated.act_events import ActBegun, ActEnded, ActRefused
from loomlog.schemas.records import Value, replace
from loomlog.services.families.act import limits

FAMILY_NAME = "act"
VERSION = 1
"""Raise it whenever the same events give another state."""
NEW, BEGUN, DONE, REFUSED, UNKNOWN = "", "begun", "done", "refused", "unknown"
FINAL = (DONE, REFUSED)
OUTCOMES = (DONE, REFUSED, UNKNOWN)

ActEvent = ActBegun | ActEnded | ActRefused


class Act(Value, frozen=True, kw_only=True):
    """State of an act."""

    act_id: str = ""
    status: str = NEW
    operation: str = ""
    who: str = ""
    request: str = ""
    """JSON, as the two below."""
    before: str = ""
    after: str = ""
    unknown_at_ms: int = 0
    """When an act that is still `begun` becomes `unknown`, UTC milliseconds; 0: never."""


def initial(aggregate: str) -> Act:
    """Return an act that has not begun, by the full id of its aggregate."""
    return Act(act_id=aggregate.partition("/")[2])


def evolve(act: Act, event: ActEvent, at_ms: int) -> Act:
    """Return the act after an event."""
    match event:
        case ActBegun(operation=operation, who=who, request=request):
            unknown_at_ms = at_ms + limits.UNKNOWN_MS
            return replace(
                act, status=BEGUN, operation=operation, who=who, request=request, unknown_at_ms=unknown_at_ms
            )
        case ActEnded(outcome=outcome, before=before, after=after):
            return replace(act, status=outcome, before=before, after=after, unknown_at_ms=0)
        case ActRefused(operation=operation, who=who):
            return replace(act, status=REFUSED, operation=operation, who=who)
        case _:
            assert_never(event)


def next_timer_ms(act: Act) -> int:
    """Return when nothing more is expected of an act that has begun; 0: never."""
    return act.unknown_at_ms


def is_over(act: Act) -> bool:
    """Whether nothing can happen in the act any more; one whose outcome is unknown may still be repeated."""
    return act.status in FINAL
