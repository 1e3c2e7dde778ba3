"""Definitions in a process: opened once, for requests, tools and the starts of runs.

Before: services/families/opening.py. After: handlers.py.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.configuration.secret_registry import SecretRegistry
from loomlog.connectors.errors import ConnectorError, describe_unreachable
from loomlog.connectors.protocols import DefinitionsView, LogRanges, SkillShelf
from loomlog.projections.audit import find_run
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.codec import Undecodable, read_envelope
from loomlog.schemas.position import Position
from loomlog.services.core.access.decide import Caller, RunIdentity
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.agents import DefinitionAgents, DefinitionBlame
from loomlog.services.families.definition.ephemeral_volumes import EphemeralVolumes
from loomlog.services.families.definition.evaluations import RUN_WAIT_S, Evaluations
from loomlog.services.families.definition.file_checks import check_files
from loomlog.services.families.definition.files import configured_definitions
from loomlog.services.families.definition.handlers import RETRY_S, DefinitionHandlers
from loomlog.services.families.definition.history import DefinitionHistory
from loomlog.services.families.definition.observation import FileObserver
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.queries import DefinitionQueries
from loomlog.services.families.definition.table import AGENT, DefinitionTable, FileDefinition
from loomlog.services.families.definition.views import DefinedAgents, DefinedSkills, RunDefinitions
from loomlog.services.families.definition.volume_table import VolumeTable
from loomlog.services.families.definition.volumes import VolumeOperations
from loomlog.services.families.opening import (
    FamilyContext,
    FamilyServices,
    OwnedPartitions,
    RunningProcess,
    Work,
    ignore_end,
)
from loomlog.services.families.ports.agent_versions import AgentVersions
from loomlog.services.families.ports.made_volumes import MadeVolumes
from loomlog.services.families.ports.run_blame import RunBlame
from loomlog.services.families.ports.run_sources import RunSources
from loomlog.services.families.ports.runnable_agents import RunnableAgents
from loomlog.services.stream.entities.absence import AbsenceCheck

check_replicas = check_files


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionOptions:
    """What the configuration says of definitions."""

    files: Mapping[tuple[str, str], FileDefinition] = field(default_factory=dict)
    """Definitions of the files, by kind and name."""
    hosts: Collection[str] | None = None
    """Those that definitions may name as addresses to call; None: any."""
    secrets: SecretRegistry | None = None
    """Which variables may sign what their rules and hooks send; None: that is not checked here."""
    run_wait_s: float = RUN_WAIT_S
    """How long a judgement waits for a run that is not known yet."""
    sweep_s: float = 60.0
    """Time between two looks for ephemeral volumes whose run is over."""


def read_options(loaded: ProcessConfiguration) -> DefinitionOptions:
    """Return the options of a process. Raises DefinitionProblem."""
    return DefinitionOptions(
        files=configured_definitions(loaded.configuration),
        hosts=loaded.settings.http_host_allowlist,
        secrets=loaded.secret_registry,
        sweep_s=loaded.settings.ephemeral_volume_sweep_ms / 1000,
    )


def open_family(context: FamilyContext) -> FamilyServices:
    """Open definitions over the lines that this process reads."""
    options, sources = context.options(DefinitionOptions), context.get(RunSources)
    replicas, reads = context.parts.replicas, context.reads
    table = DefinitionTable(replicas, options.files, blobs=context.blobs, reads=reads)
    operations = DefinitionOperations(
        context.commands, replicas, table, blobs=context.blobs, hosts=options.hosts, secrets=options.secrets
    )
    evaluations = Evaluations(
        context.commands, table, reads, sources.find, decrypt=context.decrypt, run_wait_s=options.run_wait_s
    )
    volumes = VolumeOperations(operations, VolumeTable(table, replicas))
    times = RecordTimes(sources.ranges, (reads.topic, sources.events_topic))
    context.provide(table, operations)
    context.provide_as(AgentVersions, DefinedAgents(table))
    context.provide_as(SkillShelf, DefinedSkills(table))
    context.provide_as(DefinitionsView, RunDefinitions(table, evaluations))
    context.provide_as(MadeVolumes, volumes.volumes)
    context.provide_as(RunnableAgents, DefinitionAgents(table))
    context.provide_as(RunBlame, DefinitionBlame(table, reads))
    handlers = DefinitionHandlers(
        operations,
        DefinitionQueries(operations, reads, clock_ms=context.clock_ms),
        DefinitionHistory(table, reads, time_of=times.find),
        evaluations,
        volumes,
    )
    tasks: dict[str, Work] = {}
    if (process := context.find(RunningProcess)) is not None:
        observer = FileObserver(process.name, table, context.commands, context.blobs, clock_ms=context.clock_ms)
        tasks["definitions of files"] = observer.run
    on_run_ended = ignore_end
    if (owned := context.find(OwnedPartitions)) is not None:
        ephemeral = EphemeralVolumes(
            volumes,
            partial(find_run, owned.run_rows, EVERY_TENANT),
            clock_ms=context.clock_ms,
            interval_s=options.sweep_s,
        )
        tasks["ephemeral volumes"], on_run_ended = partial(ephemeral.run, owned.is_first), ephemeral.on_run_ended
    return FamilyServices(
        handlers=handlers.by_operation(),
        tasks=tasks,
        on_run_ended=on_run_ended,
        admit_run=partial(_look_up_agent, table, context.find(AbsenceCheck)),
        start_positions=lambda tenant, agent, user_id: table.start_positions(tenant, agent, context.clock_ms()),
    )


async def _look_up_agent(
    table: DefinitionTable, absence: AbsenceCheck | None, caller: Caller, who: RunIdentity, agent: str
) -> None:
    """Read to the end of the log for an agent that is not known; its owner decides whether there is one."""
    if absence is not None and table.resolve(AGENT, who.tenant, agent) is None:
        await absence.catch_up()


class RecordTimes:
    """Times of the events in the topics of definitions and of runs."""

    def __init__(self, ranges: LogRanges, topics: Collection[str]) -> None:
        self._ranges = ranges
        self._topics = frozenset(topics)

    async def find(self, position: Position) -> int:
        """Return the time of a record, UTC milliseconds. Raises Refused."""
        if position.topic not in self._topics:
            text = f"position is of {position.topic[:80]}: expected {' or '.join(sorted(self._topics))}"
            raise Refused("bad_request", text)
        try:
            return read_envelope(await self._value(position))[0].at_ms
        except Undecodable as error:
            text = f"position {position} is of a record without a time: {error}"
            raise Refused("bad_request", text) from error
        except ConnectorError as error:
            raise Refused("log_unavailable", describe_unreachable("the log", error), retry_after_s=RETRY_S) from error

    async def _value(self, position: Position) -> bytes:
        topic, partition, offset = position.topic, position.partition, position.offset
        if offset < await self._ranges.end_offset(topic, partition):
            async with await self._ranges.read(topic, partition, offset, offset + 1) as chunks:
                async for chunk in chunks:
                    return chunk[0].value or b""
        raise Refused("bad_request", f"position {position}: there is no record")
