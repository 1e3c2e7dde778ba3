"""From definitions to armed schedules: which schedules there are, and the commands that arm and disarm them.

A tenant has the schedules of its own lines. Those of files belong to the tenant that the file names, those that all
tenants share to `default`; a line of that tenant with the same name takes their place.

The commands are asked by whichever process sees a change first: the one that made it, and the runtime that owns the
schedule. `revision`, the number of events of the definition, decides between them.

Before: services.py, reconciler.py. After: decide.py.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.configuration.schedule_block import PromptSegment, ScheduleBlock
from loomlog.connectors.configuration.secret_registry import (
    NO_SECRETS,
    Purpose,
    SecretRefused,
    SecretRegistry,
    require_signature,
)
from loomlog.connectors.definitions.canonical import canonical_json
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.problems import DefinitionProblem
from loomlog.connectors.definitions.schedule import SCHEDULE
from loomlog.connectors.definitions.triggers import hook_texts
from loomlog.connectors.errors import ConnectorError
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.schedule_commands import ArmSchedule, DisarmSchedule
from loomlog.schemas.generated.values import CommandEnvelope, ContentBlock, ScheduledRun, ScheduleSpec, Segment
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.definition.state import line_id
from loomlog.services.families.definition.table import FILE, NAME, SHARED, DefinitionTable, Resolved
from loomlog.services.families.definition.table import TENANT as TENANT_SOURCE
from loomlog.services.families.schedule.state import Schedule, is_beyond_rule
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.entities.reads import PositionNotRead
from loomlog.services.stream.entities.replicas import Replicas

log = logging.getLogger(__name__)

KIND = SCHEDULE.name
DEFAULT_TENANT = "default"
SENDER = "scheduler"
WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """What the configuration says about schedules."""

    file_tenants: Mapping[str, str] = field(default_factory=dict)
    """Tenant of each schedule of the files."""
    is_enabled: bool = True
    secrets: SecretRegistry = NO_SECRETS
    """Which variables may be credentials of a run."""


def schedule_options(
    blocks: Mapping[str, ScheduleBlock], *, is_enabled: bool, secrets: SecretRegistry
) -> ScheduleOptions:
    """Return the options of a configuration with these blocks `scheduled_runs`."""
    return ScheduleOptions(
        file_tenants={name: block.tenant_id or DEFAULT_TENANT for name, block in blocks.items()},
        is_enabled=is_enabled,
        secrets=secrets,
    )


class ActiveSchedules:
    """The schedules that there are, as far as this process has read definitions."""

    def __init__(self, table: DefinitionTable, replicas: Replicas, options: ScheduleOptions) -> None:
        self.table = table
        self.options = options
        self._replicas = replicas

    def resolve(self, tenant: str, name: str) -> Resolved | None:
        """Return the version that is active of a schedule of a tenant; None when there is none."""
        resolved = self.table.resolve(KIND, tenant, name)
        if resolved is None or resolved.source == TENANT_SOURCE:
            return resolved
        if resolved.source == FILE:
            return resolved if self.options.file_tenants.get(name) == tenant else None
        return resolved if tenant == DEFAULT_TENANT else None

    def places(self) -> Iterator[tuple[str, str]]:
        """Yield tenant and name of every schedule that may be active, some twice."""
        for tenant in self.table.tenants(KIND):
            for line in self.table.lines(KIND, tenant):
                yield tenant if tenant != SHARED else DEFAULT_TENANT, line.name
        for name, tenant in self.options.file_tenants.items():
            yield tenant, name

    def place_of(self, def_id: str) -> tuple[str, str] | None:
        """Return tenant and name of the schedule of a version; None for one that is not known here."""
        known = self.table.find(def_id)
        if known is not None:
            line = known[0]
            is_schedule = line.kind == KIND and not line.is_deleted
            return (line.tenant if line.tenant != SHARED else DEFAULT_TENANT, line.name) if is_schedule else None
        file = self.table.find_file(def_id)
        if file is None or file.kind != KIND:
            return None
        return self.options.file_tenants.get(file.name, DEFAULT_TENANT), file.name

    def revision(self, tenant: str, name: str) -> int:
        """Return the number of events of the lines that say what the schedule is."""
        lines = [aggregate_id(NAME, owner, line_id(KIND, name)) for owner in dict.fromkeys((tenant, SHARED))]
        entities = [self._replicas.entity(line) for line in lines]
        return sum(entity.seq for entity in entities if entity is not None)

    def spec_and_run(
        self, tenant: str, resolved: Resolved, content: Mapping[str, Any]
    ) -> tuple[ScheduleSpec, ScheduledRun]:
        """Return when a version fires, and what it starts. Raises DefinitionProblem for what is no schedule."""
        block: ScheduleBlock = SCHEDULE.block_of(content)
        is_enabled = block.enabled if block.enabled is not None else resolved.source != FILE
        spec = ScheduleSpec(
            times=times_of(block),
            timezone=block.timezone,
            jitter_ms=block.jitter_ms,
            overlap=block.overlap,
            catch_up_max=block.catch_up_max,
            max_fires=block.max_fires,
            is_enabled=is_enabled and self.options.is_enabled,
            problem=_problem(block, tenant, self.options.secrets),
        )
        return spec, _run(block, resolved.name)


def times_of(block: ScheduleBlock) -> str:
    """Return the times of a schedule: of a template, those of its user's plan; empty: it has none."""
    return block.schedule or block.user_tier_schedules.get(block.user_tier, "")


def _problem(block: ScheduleBlock, tenant: str, secrets: SecretRegistry) -> str:
    """Return why no run of a schedule can start; empty when one can."""
    for name in block.required_credentials:
        if name not in block.user_credentials:
            return f"required_credentials: {name} is missing in user_credentials"
    for name, variable in block.user_credentials_from_env.items():
        try:
            secrets.require(variable, Purpose.SCHEDULE_CREDENTIAL, tenant=tenant)
        except SecretRefused as refused:
            return f"user_credentials_from_env.{name}: {refused}"
    for number, hook in enumerate(block.on_complete):
        try:
            if hook.secret_env:
                require_signature(secrets, hook.secret_env, hook.url, tenant)
        except SecretRefused as refused:
            return f"on_complete[{number}].secret_env: {refused}"
    return ""


def _run(block: ScheduleBlock, name: str) -> ScheduledRun:
    return ScheduledRun(
        agent=block.agent,
        segments=tuple(map(_segment, block.prompt)),
        user_id=block.user_id,
        user_tier=block.user_tier,
        metadata={key: canonical_json(value) for key, value in block.metadata.items()},
        on_complete=hook_texts(block.on_complete, {"schedule_name": name}),
        operator_key_restricted=block.operator_key_restricted,
        credentials_env={**block.user_credentials_from_env, **block.user_credentials},
    )


def _segment(segment: PromptSegment) -> Segment:
    blocks = (
        ContentBlock(type=one.type, text=one.text, kind=one.kind, cacheable=one.cacheable) for one in segment.content
    )
    return Segment(role=segment.role, content=tuple(blocks))


class ScheduleArming:
    """Asks the owners of schedules to arm and disarm them."""

    def __init__(self, active: ActiveSchedules, commands: EntityCommands, *, clock_ms: Callable[[], int]) -> None:
        self.active = active
        self._commands = commands
        self._clock_ms = clock_ms

    async def command_for(
        self, tenant: str, name: str, known: Schedule | None = None
    ) -> ArmSchedule | DisarmSchedule | None:
        """Return what a schedule lacks; None when it is as its definition says. `known`: its state, if it was read.

        Raises ConnectorError, PositionNotRead, DefinitionProblem.
        """
        resolved = self.active.resolve(tenant, name)
        revision = self.active.revision(tenant, name)
        arms = "" if known is None else str(known.arms)
        if resolved is None:
            if known is not None and not known.is_armed:
                return None
            envelope = self._envelope(tenant, f"disarm:{revision}:{arms}")
            return DisarmSchedule(envelope=envelope, name=name, revision=revision)
        spec, run = self.active.spec_and_run(tenant, resolved, await self.active.table.load(resolved))
        is_beyond = known is not None and is_beyond_rule(known, self._clock_ms())
        if known is not None and known.def_id == resolved.def_id:
            is_spent = known.is_spent and revision <= known.revision
            if is_spent or (known.is_armed and known.spec == spec and not is_beyond):
                return None
        envelope = self._envelope(tenant, f"arm:{resolved.def_id}:{revision}:{arms}")
        return ArmSchedule(
            envelope=envelope,
            name=name,
            def_id=resolved.def_id,
            revision=revision,
            spec=spec,
            run=run,
            from_now=is_beyond,
        )

    async def ask(self, command: ArmSchedule | DisarmSchedule) -> None:
        """Carry out a command. Raises CommandUnanswered, CommandInvalid, ConnectorError."""
        answer = await self._commands.ask(command, wait_s=WAIT_S)
        last = answer.events[-1]
        if isinstance(last, CommandRefused):
            log.error("the schedule %s cannot be armed: %s", command.name, last.message)

    def _envelope(self, tenant: str, command_id: str) -> CommandEnvelope:
        # One that was handled and is forgotten may be handled again: it changes nothing then.
        return CommandEnvelope(command_id=command_id, tenant=tenant, subject=SENDER, issued_at_ms=self._clock_ms())

    async def after_change(self, kind: Kind, tenant: str, name: str) -> None:
        """Arm or disarm a schedule whose definition was changed here; what fails now its owner makes up for."""
        if kind.name != KIND:
            return
        try:
            command = await self.command_for(tenant if tenant != SHARED else DEFAULT_TENANT, name)
            if command is not None:
                await self.ask(command)
        except (CommandUnanswered, CommandInvalid, ConnectorError, PositionNotRead, DefinitionProblem) as error:
            log.warning("the schedule %s of %s is armed later: %s", name, tenant or "all tenants", error)
