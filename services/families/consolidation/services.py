"""Consolidation in a process that carries out calls of agents; a process without the rows of runs has none of it.

Before: services/families/opening.py. After: handlers.py, operations.py; run_ends.py, compactions.py.
"""

from dataclasses import dataclass
from typing import Any

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.services.families.consolidation.chats import ReadModelChats
from loomlog.services.families.consolidation.compactions import CompactionMemory
from loomlog.services.families.consolidation.erasure import TargetErasure
from loomlog.services.families.consolidation.facts import FactLearning
from loomlog.services.families.consolidation.handlers import ConsolidationHandlers
from loomlog.services.families.consolidation.operations import ConsolidationOperations, ConsolidationPolicy
from loomlog.services.families.consolidation.run_ends import RunEndMemory
from loomlog.services.families.database.services import DatabaseServices
from loomlog.services.families.memory.services import MemoryServices
from loomlog.services.families.opening import FamilyContext, FamilyServices, OwnedPartitions
from loomlog.services.families.ports.compactions import DialogueKeeper
from loomlog.services.families.ports.isolation import Isolation
from loomlog.services.families.ports.startable_agents import StartableAgents

NEEDS = ("database", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationOptions:
    """What the configuration says of consolidation."""

    internal_agents: tuple[str, ...] = ()
    """Agents with `internal: true`, whose chats are left out."""
    policy: ConsolidationPolicy = ConsolidationPolicy()  # noqa: RUF009 - frozen
    passes_max: int = 4
    """Runs of this process that have a lease at one time (MAX_CONSOLIDATION_CONCURRENCY)."""


def read_options(loaded: ProcessConfiguration) -> ConsolidationOptions:
    """Return the options of a process."""
    policy = loaded.configuration.memory.consolidation
    return ConsolidationOptions(
        internal_agents=tuple(name for name, agent in loaded.configuration.agents.items() if agent.internal),
        policy=ConsolidationPolicy(
            merge_threshold=policy.merge_threshold,
            related_threshold=policy.related_threshold,
            verify_writes=policy.verify_writes,
            detect_conflicts=policy.detect_conflicts,
        ),
        passes_max=loaded.settings.max_consolidation_concurrency,
    )


def open_family(context: FamilyContext) -> FamilyServices:
    """Open consolidation over the entities of a runtime, and let its memory learn by it; elsewhere nothing is."""
    options, owned = context.options(ConsolidationOptions), context.find(OwnedPartitions)
    eraser = TargetErasure(context.commands, context.reads, context.clock_ms)
    if owned is None:
        return FamilyServices(erasers=(eraser,))
    chats = ReadModelChats(
        owned.run_rows, context.blobs, decrypt=context.decrypt, internal_agents=lambda: options.internal_agents
    )
    operations = ConsolidationOperations(
        context.commands,
        context.reads,
        chats,
        context.blobs,
        clock_ms=context.clock_ms,
        decrypt=context.decrypt,
        encrypt=context.encrypt,
        policy=options.policy,
        passes_max=options.passes_max,
    )
    memory = context.get(MemoryServices)
    memory.entries.learning = FactLearning(operations, memory.entries.set_fact)
    handlers = ConsolidationHandlers(operations, require_local=memory.backends.require_local)
    of_runs: dict[str, Any] = {
        "internal_agents": options.internal_agents,
        "require_local": memory.backends.require_local,
        "is_isolated": context.get(Isolation),
        "clock_ms": context.clock_ms,
    }
    context.provide_as(DialogueKeeper, CompactionMemory(operations, chats, **of_runs))
    databases, can_start = context.get(DatabaseServices).operations, context.get(StartableAgents)
    run_ends = RunEndMemory(operations, databases, can_start=can_start, **of_runs)
    return FamilyServices(
        handlers=handlers.by_operation(),
        tasks={"memory of ended runs": run_ends.run},
        erasers=(eraser,),
        on_run_ended=run_ends.on_run_ended,
    )
