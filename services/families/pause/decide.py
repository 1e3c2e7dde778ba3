"""Decisions about pauses: what is set twice or lifted without being set is refused.

A start-paused switch has one effect for each of its values, whichever processes ask for it and however often. A pause
that an operator has set keeps its author and its reason; the value counts as used all the same.

Before: services/stream/entities/handler.py passes a command. After: state.py folds the event in every process.
"""

from collections.abc import Sequence
from typing import assert_never

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.pause_commands import LiftPause, SetPause
from loomlog.schemas.generated.pause_events import PauseLifted, PauseSet, SwitchUsed
from loomlog.services.core.families import At
from loomlog.services.core.pauses import validate_scope
from loomlog.services.core.run.limits import PAUSE_REASON_MAX
from loomlog.services.families.pause import limits
from loomlog.services.families.pause.state import PauseEvent, PauseTable

PauseCommand = SetPause | LiftPause


def decide(table: PauseTable, command: PauseCommand, at: At) -> Sequence[PauseEvent | CommandRefused]:
    """Return the events that follow a command; none for a value of the switch that was used before."""
    wrong = _command_error(command)
    if wrong:
        return [CommandRefused(code="bad_request", message=wrong)]
    match command:
        case SetPause():
            return _set(table, command, at)
        case LiftPause(scope=scope, tenant=tenant, agent=agent):
            if table.find(scope, tenant, agent) is None:
                return [CommandRefused(code="not_paused", message=f"{describe(scope, tenant, agent)} is not paused")]
            return [PauseLifted(scope=scope, tenant=tenant, agent=agent, by=at.caller)]
        case _:
            assert_never(command)


def _set(table: PauseTable, command: SetPause, at: At) -> Sequence[PauseEvent | CommandRefused]:
    scope, tenant, agent, switch = command.scope, command.tenant, command.agent, command.switch
    if switch and switch in table.used_switches:
        return []
    if table.find(scope, tenant, agent) is not None:
        if switch:
            return [SwitchUsed(switch=switch)]
        return [CommandRefused(code="already_pausing", message=f"{describe(scope, tenant, agent)} is paused already")]
    if len(table.entries) >= limits.PAUSES_MAX and not switch:  # a process that was to come up paused does
        return [
            CommandRefused(code="bad_request", message=f"there are {limits.PAUSES_MAX} pauses already; lift one first")
        ]
    reason = command.reason[:PAUSE_REASON_MAX]
    return [PauseSet(scope=scope, tenant=tenant, agent=agent, reason=reason, by=at.caller, switch=switch)]


def _command_error(command: PauseCommand) -> str:
    """Return what is wrong with the fields of a command; empty if nothing is."""
    try:
        validate_scope(command.scope, command.tenant, command.agent)
    except ValueError as error:
        return str(error)
    names = {"tenant": command.tenant, "agent": command.agent}
    if isinstance(command, SetPause):
        names["switch"] = command.switch
    for name, value in names.items():
        if len(value.encode()) > limits.NAME_BYTES_MAX or not value.isprintable():
            return f"{name}: expected at most {limits.NAME_BYTES_MAX} bytes of printable characters"
    return ""


def describe(scope: str, tenant: str, agent: str) -> str:
    """Return what a pause pauses, for a message."""
    return " ".join(part for part in (scope, tenant, agent) if part)
