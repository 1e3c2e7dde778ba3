"""Schedules in a process: opened once, for requests, changes of definitions and the owners of schedules.

Before: services/families/opening.py. After: handlers.py, arming.py, reconciler.py.
"""

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.families.opening import FamilyContext, FamilyServices, OwnedPartitions, StartedRuns
from loomlog.services.families.ports.credentials import CredentialValues
from loomlog.services.families.schedule.arming import (
    ActiveSchedules,
    ScheduleArming,
    ScheduleOptions,
    schedule_options,
)
from loomlog.services.families.schedule.credentials import ScheduleCredentials
from loomlog.services.families.schedule.handlers import ScheduleHandlers
from loomlog.services.families.schedule.reconciler import ScheduleReconciler

NEEDS = ("definition", "identity")


def read_options(loaded: ProcessConfiguration) -> ScheduleOptions:
    """Return the options of a process."""
    return schedule_options(
        loaded.configuration.scheduled_runs,
        is_enabled=loaded.settings.scheduler_enabled,
        secrets=loaded.secret_registry,
    )


def open_family(context: FamilyContext) -> FamilyServices:
    """Open schedules; a changed definition arms its schedule in the process that changed it."""
    options = context.options(ScheduleOptions)
    active = ActiveSchedules(context.get(DefinitionTable), context.parts.replicas, options)
    arming = ScheduleArming(active, context.commands, clock_ms=context.clock_ms)
    context.get(DefinitionOperations).after_change = arming.after_change
    handlers = ScheduleHandlers(
        active, context.commands, context.reads, decrypt=context.decrypt, clock_ms=context.clock_ms
    )
    owned = context.find(OwnedPartitions)
    if owned is None:
        return FamilyServices(handlers=handlers.by_operation())
    reconciler = ScheduleReconciler(
        arming, context.parts.replicas, context.reads, owned.rows, owned_terms=owned.terms, clock_ms=context.clock_ms
    )
    writer = context.get(StartedRuns).credentials
    credentials = ScheduleCredentials(writer, options.secrets, context.get(CredentialValues))
    return FamilyServices(
        handlers=handlers.by_operation(), tasks={"schedules": reconciler.run}, put_credentials=credentials.put
    )
