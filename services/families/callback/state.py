"""The state of a callback: what is sent where, and when the next attempt begins.

    posting   an attempt is under way; made again at `due_ms` if its end is not known by then
    waiting   the last attempt has failed; the next one begins at `due_ms`
    delivered, dead

Before: decide.py. After: sends.py passes an attempt to the process that makes it.
"""

from typing import assert_never

from loomlog.schemas.generated.callback_events import (
    CallbackAttempted,
    CallbackDead,
    CallbackDelivered,
    CallbackRequested,
    CallbackStarted,
)
from loomlog.schemas.records import Value, copy_as, replace

FAMILY_NAME = "callback"
VERSION = 1
"""Raise it whenever the same events give another state or other rows."""
NEW, POSTING, WAITING, DELIVERED, DEAD = "", "posting", "waiting", "delivered", "dead"

CallbackEvent = CallbackRequested | CallbackStarted | CallbackAttempted | CallbackDelivered | CallbackDead


class Callback(Value, frozen=True, kw_only=True):
    """State of a callback. Times in UTC milliseconds."""

    run_id: str = ""
    hook: int = 0
    status: str = NEW
    url: str = ""
    """User content."""
    secret_env: str = ""
    body: str = ""
    """User content; empty once there is no further attempt."""
    attempt: int = 0
    """Number of the last attempt, from 1."""
    due_ms: int = 0
    give_up_at_ms: int = 0
    http_status: int = 0
    """HTTP status of the last answer; 0: there was none."""
    error: str = ""
    requested_at_ms: int = 0
    ended_at_ms: int = 0

    @property
    def is_open(self) -> bool:
        """Whether a further attempt may be made."""
        return self.status in (POSTING, WAITING)


def aggregate_name(run_id: str, hook: int) -> str:
    """Return the name of the aggregate within the tenant."""
    return f"{run_id}/{hook}"


def message_id(run_id: str, hook: int) -> str:
    """Return the id of the request for its receiver: the same for every attempt."""
    return f"{run_id}:end:{hook}"


def initial(aggregate: str) -> Callback:
    return Callback()


def next_timer_ms(callback: Callback) -> int:
    """Return when the next attempt begins, or the present one is made again; 0: never."""
    return callback.due_ms if callback.is_open else 0


def evolve(callback: Callback, event: CallbackEvent, at_ms: int) -> Callback:
    """Return the callback after an event."""
    match event:
        case CallbackRequested():
            return copy_as(Callback, event, status=POSTING, attempt=1, due_ms=event.lost_at_ms, requested_at_ms=at_ms)
        case CallbackStarted():
            return replace(callback, status=POSTING, attempt=event.attempt, due_ms=event.lost_at_ms)
        case CallbackAttempted():
            return replace(
                callback, status=WAITING, due_ms=event.next_at_ms, http_status=event.status, error=event.error
            )
        case CallbackDelivered():
            return _ended(callback, DELIVERED, event.status, "", at_ms)
        case CallbackDead():
            return _ended(callback, DEAD, event.status, event.error, at_ms)
        case _:
            assert_never(event)


def _ended(callback: Callback, status: str, http_status: int, error: str, at_ms: int) -> Callback:
    return replace(callback, status=status, body="", due_ms=0, http_status=http_status, error=error, ended_at_ms=at_ms)
