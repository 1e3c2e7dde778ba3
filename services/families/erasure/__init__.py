"""The family of erasures: an aggregate for each person, with what is gone from the read models (decision 71).

Before: row_erasure.py sends the command. After: projections/erasures.py deletes the rows.
"""

from collections.abc import Sequence

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.erasure_commands import EraseRuns
from loomlog.schemas.generated.erasure_events import RunsErased
from loomlog.schemas.records import Value, copy_as
from loomlog.services.core.families import (
    At,
    Audit,
    Erasure,
    Family,
    Lifecycle,
    Rebuild,
    Rules,
    StateFiles,
    inner_commands,
)

RUNS_MAX = 10_000
"""Runs of one event: half a record of the log. More are erased by repeating it."""


class Erased(Value, frozen=True, kw_only=True):
    """State of a subject that was erased."""

    erasures: int = 0
    runs: int = 0
    """Runs that were erased, by all of them."""
    last_erasure_id: str = ""
    last_at_ms: int = 0


def decide(erased: Erased, command: EraseRuns, at: At) -> Sequence[RunsErased | CommandRefused]:
    """Return the event of an erasure; a repeated command is recognised by its id."""
    if len(command.run_ids) > RUNS_MAX:
        return [CommandRefused(code="bad_request", message=f"run_ids: expected at most {RUNS_MAX}")]
    return [copy_as(RunsErased, command)]


def evolve(erased: Erased, event: RunsErased, at_ms: int) -> Erased:
    """Return the subject after an erasure."""
    return Erased(
        erasures=erased.erasures + 1,
        runs=erased.runs + len(event.run_ids),
        last_erasure_id=event.erasure_id,
        last_at_ms=at_ms,
    )


_command = inner_commands(lambda command: str(command.subject))
FAMILY = Family(
    name="erasure",
    summary="What was erased of a person.",
    rules=Rules(state=Erased, initial=lambda aggregate: Erased(), decide=decide, evolve=evolve, version=1),
    # A restored file brings runs of its own; erasures of another installation say nothing of them.
    lifecycle=Lifecycle(
        state_files=StateFiles.LEFT_OUT, erasure=Erasure.NOTHING, audit=Audit.WHOLE, rebuild=Rebuild.EVENTS
    ),
    commands=(_command(EraseRuns, "erase_runs", "Erase the runs of a subject from all read models."),),
    services="loomlog.services.families.erasure.services",
)
