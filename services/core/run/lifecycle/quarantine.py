"""Quarantine: one run is stopped until an operator releases it, while all others continue.

    a bug, or a history that cannot be folded  --+
    its tool calls end the process repeatedly  --+-->  RunQuarantined  --ReleaseRun-->  RunReleased, and it continues
    an operator requests it (QuarantineRun)  ----+              ^                    |
                                                                +---- new error -----+

Its calls are stopped and nothing is decided in it; commands sent to it become dead letters, which can be replayed once
it is released. It can be ended. A release folds the run again from the log, so that a repair takes effect whatever was
in memory; what was under way is recovered as after a takeover.

Before: services/runtime/run/command_handler.py folds the run. After: services/core/run/decide.py recovers its calls.
Not chosen: a separate state (everything that was true of the run still is).
"""

from loomlog.schemas.generated.run_events import CommandRefused, Event, RunQuarantined, RunReleased
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import CancelCommand, ImportCommand, QuarantineCommand, ReleaseCommand
from loomlog.services.core.run.run_facts import NO_LOSSES
from loomlog.services.core.run.state import (
    AwaitingModel,
    AwaitingTools,
    Compacting,
    LiveState,
    OpenCall,
    Parked,
    Paused,
    State,
)

ACCEPTED_COMMANDS = (QuarantineCommand, ReleaseCommand, CancelCommand, ImportCommand)
"""Commands that a quarantined run accepts; a tuple, because a union is rebuilt at every check."""
LIVE_STATES = (AwaitingModel, AwaitingTools, Parked, Paused, Compacting)


def is_quarantined(state: State) -> bool:
    """Whether the run is quarantined by its own history."""
    return isinstance(state, LIVE_STATES) and bool(state.facts.quarantine_error)


def quarantine_run(state: State, request: QuarantineCommand) -> list[Event]:
    """Quarantine the run by an operator's command; refused with already_quarantined if it already is."""
    if not isinstance(state, LIVE_STATES):
        return []
    facts, command = state.facts, request.command
    why = facts.quarantine_error or request.existing_reason
    if why:
        text = f"the run {facts.run_id} is quarantined already: {why}"
        return [CommandRefused(code="already_quarantined", message=text[: limits.QUARANTINE_REASON_MAX])]
    return [_run_quarantined(command.reason or "an operator said so", by=command.envelope.subject)]


def release_quarantine(state: State, request: ReleaseCommand) -> tuple[list[Event], LiveState | None]:
    """Return the events of the release, and the state from which the run continues; None if it does not."""
    if not isinstance(state, LIVE_STATES):
        return [], None
    facts, command = state.facts, request.command
    if not (facts.quarantine_error or request.existing_reason):
        return [CommandRefused(code="not_quarantined", message=f"the run {facts.run_id} is not quarantined")], None
    if request.error:
        return [_run_quarantined(request.error, by=command.envelope.subject)], None
    released = RunReleased(by=command.envelope.subject, reason=command.reason[: limits.QUARANTINE_REASON_MAX])
    return [released], replace(state, facts=replace(facts, quarantine_error="", losses=NO_LOSSES))


def quarantine_after_losses(state: AwaitingTools, opened: OpenCall) -> RunQuarantined:
    """Quarantine the run: so many owners were lost during a tool call of it that the call may be the cause."""
    return _run_quarantined(
        f"{state.facts.losses.count + 1} processes were lost while a tool call of this run was under way, the last one "
        f"during {opened.call.name} ({state.turn}.{opened.index}); if that call is what ends them, see to the tool "
        "before the run is released"
    )


def _run_quarantined(error: str, *, by: str = "") -> RunQuarantined:
    return RunQuarantined(error=error[: limits.QUARANTINE_REASON_MAX], record_topic="", record_offset=-1, by=by)
