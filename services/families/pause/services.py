"""Pauses in a process: opened once. The api sets them, a runtime holds its runs by them.

Before: services/families/opening.py. After: handlers.py, start_paused.py.
"""

from dataclasses import dataclass
from functools import partial

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.services.families.installation import InstallationCommands
from loomlog.services.families.opening import FamilyContext, FamilyServices, OwnedPartitions, RunningProcess
from loomlog.services.families.pause.handlers import Pauses
from loomlog.services.families.pause.start_paused import StartPause
from loomlog.services.families.ports.current_request import CurrentRequest
from loomlog.services.families.ports.run_reads import RunReads
from loomlog.services.families.ports.wide_pauses import RunPauses, StatedPauses


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOptions:
    """What the configuration says of pauses."""

    start_paused: str = ""
    """Value of the switch with which runtimes start paused; empty: they do not."""


def read_options(loaded: ProcessConfiguration) -> PauseOptions:
    """Return the options of a process."""
    return PauseOptions(start_paused=loaded.settings.start_paused)


def open_family(context: FamilyContext) -> FamilyServices:
    """Open pauses."""
    if (runs := context.find(RunReads)) is not None:
        pauses = Pauses(runs, context.get(InstallationCommands), context.get(CurrentRequest))
        context.provide_as(StatedPauses, pauses)
        return FamilyServices(handlers=pauses.by_operation(), admit_run=pauses.admit_run)
    if context.find(OwnedPartitions) is None:
        return FamilyServices()
    switch, by = context.options(PauseOptions).start_paused, context.get(RunningProcess).name
    start = StartPause(context.parts.replicas, switch=switch, by=by, at_ms=context.clock_ms())
    on_change = partial(context.parts.replicas.on_change, "pause")
    context.provide_as(RunPauses, RunPauses(now=start.table, on_change=on_change))
    return FamilyServices(tasks={"start paused": partial(start.ask, context.commands)})
