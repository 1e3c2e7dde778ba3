"""Imports: a run that happened elsewhere is appended to this log event by event, without carrying out its effects.

Its events keep their seqs and times; terms, offsets and the hash chain are those of this log. The first event contains
where the run happened and its final digest there. Long runs come in parts; between two parts the run has not ended and
accepts only the next part or a cancel. For a run that was still under way when it was exported the command decides:

    continues false   it ends here as cancelled: it continues where it came from, and can be forked here
    continues true    a restore: it is a run of this log from RunRestored on, and what was open is lost, as after a
                      takeover. If another run has its session or its handle by then, it ends as cancelled

Before: services/runtime/run/command_handler.py has found what the run continues in this log. After: the events are
appended. The definition and the user of an imported run are not trusted (fork.py), unless an administrator restored it.

Not chosen: one event that refers to the file (the run could not be folded from the log alone).
"""

from collections.abc import Callable

from loomlog.schemas.generated.run_events import Event, RunCancelled, RunRefused, RunRestored, RunStarted
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import ImportCommand
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.interrupts import interruptions
from loomlog.services.core.run.run_facts import import_identity
from loomlog.services.core.run.state import (
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    IllegalEvent,
    LiveState,
    Parked,
    Paused,
    State,
)

STARTED_STATES = (AwaitingModel, AwaitingTools, Parked, Paused, Compacting, Ended)
"""States of a run that has started. A tuple, because a union is rebuilt at every check, and each event is checked."""
CONTINUES_ELSEWHERE = "imported while it was under way: it goes on where it came from"
HISTORY_ONLY = "restored as history only: what was said in it cannot be read here, or not all of it was in the file"


def import_events(state: State, request: ImportCommand, recover: Callable[[LiveState], list[Event]]) -> list[Event]:
    """Return the events of the part that are not here yet; none when all are, some before it are missing, or it is of
    another file than the run here.

    `recover` returns what follows for a live run whose owner is lost.
    """
    command = request.command
    is_open = isinstance(state, Absent) or (is_importing(state) and not isinstance(state, Ended))
    known = request.next_seq - command.first_seq
    total = command.origin.events
    if not is_open or known < 0 or (known and known >= len(request.events)):
        return []
    if isinstance(state, STARTED_STATES) and state.facts.imported_as != import_identity(command.origin):
        return []  # otherwise a restore would continue a run whose first events are untrusted
    # An earlier sender may have cut the same file into other parts.
    events, times = list(request.events[known:]), request.times[known:]
    if not events or request.next_seq + len(events) - 1 > total:
        return _refuse_import(state, f"the part has {len(events)} events from {command.first_seq} of {total}")
    if isinstance(state, Absent):
        first = events[0]
        if not isinstance(first, RunStarted):
            return _refuse_import(state, f"a run begins with RunStarted, not {type(first).__name__}")
        events[0] = replace(first, imported_from=command.origin)
    after = state
    try:
        for seq, (event, at_ms) in enumerate(zip(events, times, strict=True), request.next_seq):
            if isinstance(event, RunRestored) and event.events >= seq:
                # Before the last part it would make the run one of this log, with all its unverified content.
                return _refuse_import(state, f"event {seq} says that {event.events} events were told before it")
            after = evolve(after, event, at_ms)
    except IllegalEvent as error:
        return _refuse_import(state, f"the history cannot be folded: {error}")
    is_last = request.next_seq + len(events) - 1 == total
    if is_last and isinstance(after, LiveState):
        ended = HISTORY_ONLY if command.origin.restored else CONTINUES_ELSEWHERE
        events += _restore_run(after, request, recover) if command.continues else _cancelled(after, ended)
    return events


def _restore_run(
    imported: LiveState, request: ImportCommand, recover: Callable[[LiveState], list[Event]]
) -> list[Event]:
    """Turn a completely imported run into one of this log."""
    if request.conflicting_run_id:
        return _cancelled(imported, f"restored, but {request.conflicting_run_id} has its session or its handle here")
    restored = RunRestored(events=request.command.origin.events)
    here = evolve(imported, restored, request.at_ms)
    assert isinstance(here, LiveState)
    return [restored] if here.facts.quarantine_error else [restored, *recover(here)]


def is_importing(state: State) -> bool:
    """Whether the run was imported and not restored."""
    return isinstance(state, STARTED_STATES) and state.facts.imported_events > 0


def _refuse_import(state: State, message: str) -> list[Event]:
    if isinstance(state, LiveState):
        return _cancelled(state, f"the import was given up: {message}")
    return [RunRefused(code="bad_request", message=message)]


def _cancelled(state: LiveState, reason: str) -> list[Event]:
    facts = state.facts
    end = RunCancelled(
        reason=reason,
        iterations=facts.turns,
        usage=facts.usage,
        cost_micros=facts.cost_micros,
        currency=facts.currency,
    )
    return interruptions.close_questions_at_end(state, [end])
