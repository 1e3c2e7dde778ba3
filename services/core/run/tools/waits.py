"""Calls that wait for channels: they hold no task, and their queues report to the run.

    the tool answers "I wait"       CallWaits   --> CallWaiting, and the call waits in the state
    a queue reports messages        ReportWait  --> of a subscribe, or when an await is satisfied: the call's result
                                                    of an await that needs more: WaitReported
    the wait is over                ReportWait (is_expired), or the timer of the run: the call's result
    a new owner, after its end      RecoverCommand --> CallWaiting once more: queues have their time to report from then

A report has a lease or a count. The runtime loads the messages and makes the result
(services/runtime/run/wait_reports.py), which is then decided as that of any other call.

Before: services/core/run/decide.py. After: evolve_waits.py has the state; services/core/run/lifecycle/timers.py has the
time after which the run does not rely on the queue any more.
"""

from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.run_events import CallWaiting, Event, ToolReturned, WaitReported
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import CallWaits, WaitReportCommand
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools, OpenCall, State, Wait, idempotency_key
from loomlog.services.core.run.tools import hook_events, unknown_outcome

SUBSCRIBE, ANY, ALL, AT_LEAST = "subscribe", "any", "all", "at_least"
"""Modes of a wait: the first messages of one queue, or counts of one or more queues."""
NOT_ANSWERED = "the channel did not answer in time; its messages, if any, are still there"
TIMEOUT = "timeout"
"""Outcome of a call whose queues did not report."""


def start_waiting(state: State, result: CallWaits) -> list[Event]:
    """Record that a call waits; nothing if its attempt is not open."""
    opened = (
        unknown_outcome.find_call_of_turn(state, result.turn, result.index)
        if isinstance(state, AwaitingTools)
        else None
    )
    if opened is None or opened.attempt != result.attempt or not _is_under_way(opened):
        return []
    return [
        *hook_events.hook_events(result.turn, opened, result.hook_acts),
        copy_as(CallWaiting, result, call_id=opened.call.id),
    ]


def outlasted_wait(state: AwaitingTools, opened: OpenCall, at_ms: int) -> list[Event]:
    """Record that a call still waits whose time ended before the takeover at `at_ms`; nothing for any other call.

    What was away may have been the queue's owner as well, so its report is expected from now on.
    """
    wait = opened.wait
    if wait is None or wait.until_ms >= at_ms:
        return []
    return [
        CallWaiting(
            turn=state.turn,
            index=opened.index,
            call_id=opened.call.id,
            attempt=opened.attempt,
            wait_id=wait.wait_id,
            until_ms=at_ms,
            queues=wait.queues,
            mode=wait.mode,
            needed=wait.needed,
        )
    ]


def record_report(state: State, request: WaitReportCommand) -> list[Event]:
    """Record the count of a queue that is not enough for the call yet; nothing if it is known."""
    report = request.command
    opened = find_reported_call(state, report)
    wait = None if opened is None else opened.wait
    if opened is None or wait is None or wait.wait_id != report.wait_id or report.queue not in wait.queues:
        return []
    queue = wait.queues.index(report.queue)
    if wait.counts[queue] == report.count:
        return []
    return [WaitReported(turn=report.turn, index=report.index, wait_id=wait.wait_id, queue=queue, count=report.count)]


def expire_waits(state: AwaitingTools, at_ms: int) -> list[Event]:
    """Return error results of the calls whose queues should have reported by now."""
    return [
        ToolReturned(
            turn=state.turn,
            index=opened.index,
            call_id=opened.call.id,
            attempt=opened.attempt,
            text=NOT_ANSWERED,
            is_error=True,
            outcome=TIMEOUT,
            duration_ms=max(0, at_ms - opened.wait.since_ms),
        )
        for opened in state.open
        if opened.wait is not None and expires_at(opened.wait) <= at_ms
    ]


def expires_at(wait: Wait) -> int:
    """Return when the run ends the call by itself, UTC milliseconds."""
    return wait.until_ms + limits.WAIT_GRACE_MS


def find_reported_call(state: State, report: ReportWait) -> OpenCall | None:
    """Return the open call that a report names; None if it has its result or was never made."""
    if not isinstance(state, AwaitingTools):
        return None
    return unknown_outcome.find_call_of_turn(state, report.turn, report.index)


def reported_wait(opened: OpenCall, report: ReportWait) -> Wait | None:
    """Return the wait of an open call as it is with the report; None if the report is not meant for it.

    A report may come before the call is recorded as waiting: then the wait is what the report says of it.
    """
    wait = opened.wait
    if wait is None:
        if not _is_under_way(opened) or report.wait_id != idempotency_key(report.run_id, report.turn, report.index):
            return None
        return Wait(
            wait_id=report.wait_id,
            until_ms=0,
            queues=(report.queue,),
            mode=SUBSCRIBE if report.lease_id else "",
            counts=(report.count,),
        )
    if wait.wait_id != report.wait_id or report.queue not in wait.queues:
        return None
    at = wait.queues.index(report.queue)
    return replace(wait, counts=(*wait.counts[:at], max(report.count, wait.counts[at]), *wait.counts[at + 1 :]))


def is_satisfied(wait: Wait, report: ReportWait) -> bool:
    """Whether the messages are there that the call waits for, with the report counted."""
    if report.lease_id:
        return True
    match wait.mode:
        case "any":
            return any(wait.counts)
        case "all":
            return all(wait.counts)
        case "at_least":
            return sum(wait.counts) >= wait.needed
        case _:
            return False


def taken_of_lease(facts: RunFacts | None, lease_id: str) -> int:
    """Return how many messages of a lease the calls of a run have returned; 0 if none, or if it is not remembered."""
    if facts is None:
        return 0
    return next((lease.taken for lease in reversed(facts.leases) if lease.lease_id == lease_id), 0)


def _is_under_way(opened: OpenCall) -> bool:
    """Whether an attempt of the call is made, and nothing else is waited for."""
    return opened.wait is None and opened.delegation is None and not opened.awaits_person and not opened.is_reconciling
