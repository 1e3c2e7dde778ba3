"""Imports: a run that happened elsewhere is told here again, event by event, and nothing of it is done.

Its events keep their seqs and times; terms, offsets and the hash chain are this log's own. The first event says where
the run happened and with which digest it ended there. Long runs come in parts; between two of them the run is not over,
and nothing but the next part or a cancel is heard. Of one that was still under way when it was exported the command
says:

    continues false   it ends here as cancelled: it goes on where it came from, and can be forked here
    continues true    a restore: it is a run of this log from RunRestored on, and what was open is lost, as after a
                      take-over. If another run has its session or its handle by then, it ends as cancelled

Before: services/runtime/run/command_handler.py has found what the run goes on with in this log. After: the events are
appended. What an imported run says of its definition and its user is hearsay (fork.py), unless an administrator
restored it.

Not chosen: one event that refers to the file (nobody could fold the run from the log alone).
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
"""A tuple, because a union is made anew at every look, and this is looked at with each event."""
CONTINUES_ELSEWHERE = "imported while it was under way: it goes on where it came from"
HISTORY_ONLY = "restored as history only: what was said in it cannot be read here, or not all of it was in the file"


def import_events(state: State, request: ImportCommand, recover: Callable[[LiveState], list[Event]]) -> list[Event]:
    """The events of the part that are not here yet; none when all are, some before it are missing, or it is of another
    file than the run here.

    `recover` gives what follows for a live run whose owner is lost.
    """
    command = request.command
    is_open = isinstance(state, Absent) or (is_importing(state) and not isinstance(state, Ended))
    known = request.next_seq - command.first_seq
    total = command.origin.events
    if not is_open or known < 0 or (known and known >= len(request.events)):
        return []
    if isinstance(state, STARTED_STATES) and state.facts.imported_as != import_identity(command.origin):
        return []  # else a restore would go on with a run whose beginning is anybody's words
    # Whoever sent it before may have cut the same file into other parts.
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
                # Before the last part is told it would make the run one of this log, with all it says of itself.
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
    """What makes a run that was told to its end one of this log."""
    if request.conflicting_run_id:
        return _cancelled(imported, f"restored, but {request.conflicting_run_id} has its session or its handle here")
    restored = RunRestored(events=request.command.origin.events)
    here = evolve(imported, restored, request.at_ms)
    assert isinstance(here, LiveState)
    return [restored] if here.facts.quarantine_error else [restored, *recover(here)]


def is_importing(state: State) -> bool:
    """Whether the run happened elsewhere."""
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
