"""Decisions about acts: each is begun once and ends once, however often its request is repeated.

A repetition of a request whose process died finds its act begun, and ends it. One whose outcome was unknown is ended
again by the attempt that learns it; an outcome that is known stays.

Before: recording.py sends commands. After: state.py folds the events.
"""

from collections.abc import Sequence
from typing import assert_never

from loomlog.schemas.generated.act_commands import BeginAct, EndAct, NoteRefusals
from loomlog.schemas.generated.act_events import ActBegun, ActEnded, ActRefused
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import copy_as
from loomlog.services.core.families import At, TimerFired
from loomlog.services.families.act import limits
from loomlog.services.families.act.limits import NAME_CHARACTERS_MAX
from loomlog.services.families.act.state import FINAL, NEW, OUTCOMES, UNKNOWN, Act, ActEvent

ActCommand = BeginAct | EndAct | NoteRefusals


def decide(act: Act, command: ActCommand | TimerFired, at: At) -> Sequence[ActEvent | CommandRefused]:
    """Return the events that follow a command; none for what is known already."""
    if not isinstance(command, TimerFired) and (problem := _problem(command)):
        return [CommandRefused(code="bad_request", message=problem)]
    match command:
        case TimerFired():
            is_due = 0 < act.unknown_at_ms <= at.at_ms
            return [ActEnded(act_id=act.act_id, outcome=UNKNOWN)] if is_due else []
        case BeginAct():
            return [] if act.status != NEW else [copy_as(ActBegun, command)]
        case EndAct():
            return _end(act, command)
        case NoteRefusals():
            return [] if act.status != NEW else [copy_as(ActRefused, command)]
        case _:
            assert_never(command)


def _end(act: Act, command: EndAct) -> Sequence[ActEvent | CommandRefused]:
    if act.status == NEW:
        return [CommandRefused(code="bad_request", message="the act has not begun: send BeginAct first")]
    if act.status in FINAL or act.status == command.outcome:
        return []
    return [copy_as(ActEnded, command)]


def _problem(command: ActCommand) -> str:
    """Return what is wrong with the fields of a command; empty if nothing is."""
    texts = ("request",) if isinstance(command, BeginAct) else ("before", "after")
    for name in command.__struct_fields__:
        value = getattr(command, name)
        if not isinstance(value, str):
            continue
        if name in texts:
            if len(value.encode(errors="replace")) > limits.TEXT_BYTES_MAX:
                return f"{name}: expected at most {limits.TEXT_BYTES_MAX} bytes"
        elif len(value) > NAME_CHARACTERS_MAX or not value.isprintable():
            return f"{name}: expected at most {NAME_CHARACTERS_MAX} printable characters"
    if isinstance(command, EndAct):
        return "" if command.outcome in OUTCOMES else f"outcome: expected one of {', '.join(OUTCOMES)}"
    if command.at_ms < 0:
        return "at_ms: expected UTC milliseconds"
    if isinstance(command, NoteRefusals) and command.count < 1:
        return "count: expected at least 1"
    return ""
