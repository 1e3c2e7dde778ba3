"""Decisions about callbacks: when an attempt is made, and when none is made any more.

An attempt is made by a process outside of the log, which tells its end. A process that dies between the two leaves an
attempt whose end is not known: it is made again, so a receiver may get the same request, with the same id, twice.

Before: services/stream/entities/handler.py passes a command. After: state.py folds the events.
"""

from collections.abc import Sequence
from typing import assert_never

from loomlog.schemas.generated.callback_commands import RequestCallback, SettleCallback
from loomlog.schemas.generated.callback_events import (
    CallbackAttempted,
    CallbackDead,
    CallbackDelivered,
    CallbackRequested,
    CallbackStarted,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.records import copy_as
from loomlog.services.core.families import At, TimerFired
from loomlog.services.families.callback import limits
from loomlog.services.families.callback.state import NEW, WAITING, Callback, CallbackEvent

BAD_REQUEST = "bad_request"
TOO_LATE, REFUSED = "time", "refused"
"""Why there is no further attempt."""
NO_RESULT = "the end of the last attempt is not known"
UNUSED = "that is no attempt of this callback"

CallbackCommand = RequestCallback | SettleCallback


def decide(
    callback: Callback, command: CallbackCommand | TimerFired, at: At
) -> Sequence[CallbackEvent | CommandRefused]:
    """Return the events that follow a command."""
    match command:
        case TimerFired():
            return _continue(callback, at)
        case RequestCallback():
            return _request(callback, command, at)
        case SettleCallback():
            return _settle(callback, command, at)
        case _:
            assert_never(command)


def _request(callback: Callback, command: RequestCallback, at: At) -> Sequence[CallbackEvent | CommandRefused]:
    if problem := _problem(command):
        return [CommandRefused(code=BAD_REQUEST, message=problem)]
    if callback.status != NEW:
        return []  # asked for once more, after the first request is forgotten
    return [
        copy_as(
            CallbackRequested, command, give_up_at_ms=at.at_ms + limits.GIVE_UP_MS, lost_at_ms=at.at_ms + limits.LOST_MS
        )
    ]


def _problem(command: RequestCallback) -> str:
    if not ID_PATTERN.match(command.run_id):
        return "run_id: expected the id of a run"
    if not 0 <= command.hook <= limits.HOOK_MAX:
        return f"hook: expected 0 to {limits.HOOK_MAX}"
    if not 0 < len(command.url) <= limits.URL_CHARACTERS_MAX or not command.url.isprintable():
        return f"url: expected at most {limits.URL_CHARACTERS_MAX} printable characters"
    if len(command.body.encode(errors="replace")) > limits.BODY_BYTES_MAX:
        return f"body: expected at most {limits.BODY_BYTES_MAX} bytes"
    return ""


def _settle(callback: Callback, command: SettleCallback, at: At) -> Sequence[CallbackEvent | CommandRefused]:
    if callback.status == NEW or not 0 < command.attempt <= callback.attempt:
        return [CommandRefused(code=BAD_REQUEST, message=UNUSED)]
    if not callback.is_open:
        return []
    if not command.error:
        # Also that of an attempt which was taken for lost: the receiver has it.
        return [
            CallbackDelivered(
                run_id=callback.run_id, hook=callback.hook, attempt=command.attempt, status=command.status
            )
        ]
    if command.attempt < callback.attempt or callback.status == WAITING:
        return []
    error = command.error[: limits.ERROR_CHARACTERS_MAX]
    if command.is_final:
        return [_dead(callback, command.status, error, REFUSED)]
    next_at_ms = at.at_ms + limits.pause_ms(command.attempt)
    if next_at_ms >= callback.give_up_at_ms:
        return [_dead(callback, command.status, error, TOO_LATE)]
    return [
        CallbackAttempted(
            run_id=callback.run_id,
            hook=callback.hook,
            attempt=command.attempt,
            status=command.status,
            error=error,
            next_at_ms=next_at_ms,
        )
    ]


def _continue(callback: Callback, at: At) -> Sequence[CallbackEvent]:
    """Begin the next attempt, or make one again whose end is not known."""
    if not callback.is_open or at.at_ms < callback.due_ms:
        return []
    is_lost = callback.status != WAITING
    if at.at_ms >= callback.give_up_at_ms:
        return [_dead(callback, callback.http_status, NO_RESULT if is_lost else callback.error, TOO_LATE)]
    attempt = callback.attempt if is_lost else callback.attempt + 1
    return [
        CallbackStarted(
            run_id=callback.run_id, hook=callback.hook, attempt=attempt, lost_at_ms=at.at_ms + limits.LOST_MS
        )
    ]


def _dead(callback: Callback, status: int, error: str, reason: str) -> CallbackDead:
    return CallbackDead(
        run_id=callback.run_id,
        hook=callback.hook,
        attempt=callback.attempt,
        status=status,
        error=error,
        reason=reason,
    )
