"""Applying several definitions at once: all of them become active at one offset, or none does.

    ApplyDefinitions   -> ApplyBegan, and a StageVersion to the line of each change
    each line          -> the version and VersionStaged, or a refusal; both are answered to the batch
    the last answer    -> DefinitionsApplied (or ApplyRefused), and a SettleStage to each line

A line with a staged version resolves to it as soon as the batch is applied (table.py): one event, whatever the order in
which the lines are settled. A process that has read only some of the lines resolves all of them to what was active
before. Other writes to a line are refused while it has a stage. Content that is active already makes no version. What a
refused batch has staged stays as a retired version.

Before: decide.py and state.py, for aggregates of the kind "apply". After: the outbox.
"""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.definition_commands import AnswerStage, ApplyDefinitions, SettleStage, StageVersion
from loomlog.schemas.generated.definition_events import (
    ApplyBegan,
    ApplyRefused,
    DefinitionsApplied,
    StageAnswered,
    VersionStaged,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.core.families import FROM_OUTBOX, At, Send

KIND = "apply"
FAMILY_NAME = "definition"
CHANGES_MAX = 32
RUNNING, APPLIED, REFUSED = "running", "applied", "refused"


class BatchChange(Value, frozen=True, kw_only=True):
    """A change of a batch. `def_id` is empty until its line has staged it."""

    kind: str
    name: str
    def_id: str = ""
    is_answered: bool = False


class Batch(Value, frozen=True, kw_only=True):
    """State of a batch."""

    id: str = ""
    changes: tuple[BatchChange, ...] = ()
    status: str = ""
    """Empty before it begins, then running, applied or refused."""
    reason: str = ""
    message: str = ""
    by: str = ""
    why: str = ""


BatchCommand = ApplyDefinitions | AnswerStage
BatchEvent = ApplyBegan | StageAnswered | DefinitionsApplied | ApplyRefused


def decide_batch(batch: Batch, command: BatchCommand, at: At) -> Sequence[BatchEvent | CommandRefused]:
    """Return the events that follow a command to a batch."""
    if isinstance(command, ApplyDefinitions):
        if batch.status:
            return [CommandRefused(code="definition_conflict", message=f"the batch {batch.id} has begun already")]
        lines = [(change.kind, change.name) for change in command.changes]
        if not 0 < len(lines) <= CHANGES_MAX:
            return [CommandRefused(code="too_many", message=f"expected 1 to {CHANGES_MAX} definitions")]
        if len(set(lines)) < len(lines):
            return [CommandRefused(code="invalid_definition", message="a definition is named twice")]
        if refusal := _names_problem(lines):
            return [refusal]
        return [copy_as(ApplyBegan, command, kind=KIND, name=batch.id, by=at.caller)]
    if batch.status != RUNNING or not 0 <= command.change < len(batch.changes):
        return []
    if batch.changes[command.change].is_answered:
        return []
    answered = copy_as(StageAnswered, command, kind=KIND, name=batch.id)
    after = evolve_batch(batch, answered)
    if not all(change.is_answered for change in after.changes):
        return [answered]
    if after.reason:
        return [answered, ApplyRefused(kind=KIND, name=batch.id, reason=after.reason, message=after.message)]
    def_ids = tuple(change.def_id for change in after.changes)
    return [answered, DefinitionsApplied(kind=KIND, name=batch.id, def_ids=def_ids)]


def evolve_batch(batch: Batch, event: BatchEvent) -> Batch:
    """Return the batch after an event."""
    match event:
        case ApplyBegan():
            changes = tuple(BatchChange(kind=change.kind, name=change.name) for change in event.changes)
            return replace(batch, changes=changes, status=RUNNING, by=event.by, why=event.description)
        case StageAnswered(change=number):
            changed = replace(batch.changes[number], def_id=event.def_id, is_answered=True)
            changes = (*batch.changes[:number], changed, *batch.changes[number + 1 :])
            first = batch.reason or event.def_id
            problem = {} if first else {"reason": event.reason, "message": f"{changed.name}: {event.message}"}
            return replace(batch, changes=changes, **problem)
        case DefinitionsApplied():
            return replace(batch, status=APPLIED)
        case ApplyRefused():
            return replace(batch, status=REFUSED, reason=event.reason, message=event.message)


def sends(state: Any, event: Any) -> Sequence[Send]:
    """Return the commands to the other aggregates of a batch."""
    match event:
        case ApplyBegan():
            return [Send(to=FAMILY_NAME, command=_stage(event, number)) for number in range(len(event.changes))]
        case VersionStaged():
            answer = AnswerStage(
                envelope=FROM_OUTBOX,
                kind=KIND,
                name=event.batch,
                change=event.change,
                def_id=event.def_id,
                reason=event.reason,
                message=event.message,
            )
            return [Send(to=FAMILY_NAME, command=answer)]
        case DefinitionsApplied() | ApplyRefused():
            is_applied = isinstance(event, DefinitionsApplied)
            return [
                Send(
                    to=FAMILY_NAME,
                    command=SettleStage(
                        envelope=FROM_OUTBOX,
                        kind=change.kind,
                        name=change.name,
                        batch=event.name,
                        is_applied=is_applied,
                        by=state.by,
                        why=state.why,
                    ),
                )
                for change in state.changes
            ]
        case _:
            return ()


def _names_problem(lines: Sequence[tuple[str, str]]) -> CommandRefused | None:
    """Return the refusal of lines that cannot be; a command to one would never be answered."""
    # Imported here, because the command line reads the declarations of families and checks no definition.
    from loomlog.connectors.definitions import KINDS, DefinitionProblem

    for kind, name in lines:
        if kind not in KINDS:
            message = f"kind is {kind[:60]!r}: expected {', '.join(sorted(KINDS))}"
            return CommandRefused(code="invalid_definition", message=message)
        try:
            KINDS[kind].check_name(name)
        except DefinitionProblem as problem:
            return CommandRefused(code=problem.reason, message=f"{name[:80]}: {problem.message}")
    return None


def _stage(event: ApplyBegan, number: int) -> StageVersion:
    change = event.changes[number]
    return copy_as(
        StageVersion,
        change,
        envelope=FROM_OUTBOX,
        batch=event.name,
        change=number,
        by=event.by,
        description=event.description,
        created_by_agent_id=event.created_by_agent_id,
        created_by_agent=event.created_by_agent,
        created_by_run_id=event.created_by_run_id,
    )
